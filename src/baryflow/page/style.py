"""Style sheet of the page: light and dark, wide and narrow screens, print."""

#: Colours are safe for red-green colour blindness: those of classes and lines (c, Okabe and Ito, 2008),
#: and those of sources (s, Tol, 2021).
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --panel: #f5f6f8; --ink: #1b1f24; --soft: #57606a;
  --rule: #d5d9df; --rest: #b3b9c2; --mark: #1b1f24;
  --c0: #0072b2; --c1: #e69f00; --c2: #009e73; --c3: #cc79a7; --c4: #56b4e9; --c5: #d55e00;
  --s0: #332288; --s1: #ddcc77; --s2: #117733; --s3: #cc6677; --s4: #88ccee; --s5: #aa4499; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #12151a; --panel: #1c2128;
  --ink: #e8eaed; --soft: #a4adb8; --rule: #363d47; --rest: #5a636f; --mark: #fff;
  --c0: #3d9bd6; --c1: #e8ab2e; --c2: #17b389; --c3: #d48fb4; --c4: #86ccf3; --c5: #e97a2c;
  --s0: #8f80e8; --s1: #ddcc77; --s2: #3fa85f; --s3: #de8492; --s4: #9bd6f2; --s5: #c76fb8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main, header, footer { max-width: 62rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .5rem 0; max-width: 46rem; }
.lede { font-size: 1.1rem; }
.note, .axis, footer, figcaption { color: var(--soft); font-size: .875rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem;
  margin: 1.25rem 0; padding: 0; }
.cards div { background: var(--panel); border-radius: .5rem; padding: .75rem 1rem; break-inside: avoid; }
.cards dt { color: var(--soft); font-size: .875rem; }
.cards dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.25; }
.cards dd.long { font-size: 1rem; }
.cards dd small { display: block; font-size: .8125rem; font-weight: 400; color: var(--soft); }
.pair { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0 2.5rem; }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .9375rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: .875rem; padding-bottom: .25rem; }
th, td { text-align: left; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { font-weight: 600; } thead th { font-size: .8125rem; color: var(--soft); vertical-align: bottom; }
tbody th { font-weight: 400; min-width: 8rem; }
td { min-width: 9rem; } td.n { min-width: 0; } thead .n { min-width: 5.6rem; }
.w { white-space: nowrap; }
.n { text-align: right; white-space: nowrap; overflow-wrap: normal; }
thead .n { white-space: normal; overflow-wrap: anywhere; }
td:last-child, th:last-child { padding-right: 0; }
td.b { width: 40%; min-width: 5.5rem; vertical-align: middle; }
.bar { display: block; width: 100%; height: .85rem; } .wide { min-width: 6rem; }
.trend { height: 1.5rem; background: var(--panel); }
td.d { width: 22%; }
.key { width: .85rem; height: .85rem; margin-right: .4rem; vertical-align: -.08rem; }
figure { margin: .5rem 0 1rem; padding-top: .5rem; break-inside: avoid; }
.chart { display: grid; grid-template-columns: 3.25rem minmax(0, 1fr); gap: .25rem .4rem; }
.plot { width: 100%; height: 12rem; display: block; background: var(--panel); }
.y, .x { display: flex; justify-content: space-between; font-size: .8125rem; color: var(--soft);
  line-height: 1; overflow-wrap: normal; }
.y { flex-direction: column; text-align: right; margin: -.4rem 0; } .x { grid-column: 2; }
.axis { text-align: center; margin: .15rem 0 0 3.65rem; max-width: none; font-size: .8125rem; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; font-size: .875rem;
  padding: 0; margin: .4rem 0 0 3.65rem; }
.area { stroke: none; } .line { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; }
polygon.area { stroke: var(--paper); stroke-width: .75; vector-effect: non-scaling-stroke; }
.grid, .middle { stroke: var(--rule); stroke-width: 1; vector-effect: non-scaling-stroke; }
.middle { stroke: var(--soft); }
.mark { stroke: var(--mark); stroke-width: 1.5; stroke-dasharray: 4 3;
  vector-effect: non-scaling-stroke; }
.area.c0 { fill: var(--c0); } .area.c1 { fill: var(--c1); } .area.c2 { fill: var(--c2); }
.area.c3 { fill: var(--c3); } .area.c4 { fill: var(--c4); } .area.c5 { fill: var(--c5); }
.area.s0 { fill: var(--s0); } .area.s1 { fill: var(--s1); } .area.s2 { fill: var(--s2); }
.area.s3 { fill: var(--s3); } .area.s4 { fill: var(--s4); } .area.s5 { fill: var(--s5); }
.area.rest { fill: var(--rest); } .line.c0 { stroke: var(--c0); } .line.c5 { stroke: var(--c5); }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--soft); font-size: .9375rem; }
.report { background: var(--panel); padding: .5rem 1rem; border-radius: .5rem; margin: .5rem 0;
  font-size: .9375rem; } .report .in { margin: .15rem 0 .15rem 1.25rem; }
footer { padding: 2rem 1.25rem; } :focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
@media (max-width: 44rem) { .pair { grid-template-columns: minmax(0, 1fr); }
  main, header, footer { padding-left: 1rem; padding-right: 1rem; } h1 { font-size: 1.5rem; }
  .legend, .axis { margin-left: 0; } .d { display: none; } th, td { padding-right: .5rem; } }
@page { margin: 1.5cm; }
@media print { html { font-size: 12px; } body { font-size: 1rem; }
  main, header, footer { max-width: none; padding: 0; } h2 { margin-top: 1.25rem; }
  h2, h3, .note, caption, thead { break-after: avoid; } tr, p, .pair { break-inside: avoid; }
  details:not([open]) { display: none; } .scroll { overflow: visible; }
  .bar, .plot, .key, .cards div { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
""".strip()
