// An OPC UA server with three variables that change every 100 ms, and their history.
// Usage: node node_opcua.js PORT. Prints one line of JSON once it serves: the time of step 0.
// At step k (0, 1, 2, ...) variable j has the value 1000 j + k / 4, stamped with the time of step 0 + k * 100 ms.
"use strict";

const { DataType, MessageSecurityMode, OPCUAServer, SecurityPolicy, StatusCodes } = require("node-opcua");

const STEP = 100;
const NAMES = ["flow", "pressure", "temperature"];
const HISTORY = 100000;

async function main(port) {
  const server = new OPCUAServer({
    port,
    hostname: "127.0.0.1",
    resourcePath: "/plant",
    allowAnonymous: true,
    securityModes: [MessageSecurityMode.None],
    securityPolicies: [SecurityPolicy.None],
  });
  await server.initialize();
  const space = server.engine.addressSpace;
  const own = space.getOwnNamespace();
  const plant = own.addObject({ organizedBy: space.rootFolder.objects, browseName: "Plant", nodeId: "s=Plant" });
  const variables = NAMES.map((browseName) => {
    const accessLevel = "CurrentRead | HistoryRead";
    const variable = own.addVariable({
      componentOf: plant, browseName, nodeId: `s=${browseName}`, dataType: DataType.Double,
      accessLevel, userAccessLevel: accessLevel, minimumSamplingInterval: 0,
    });
    space.installHistoricalDataNode(variable, { maxOnlineValues: HISTORY });
    return variable;
  });
  await server.start();

  const start = Math.ceil(Date.now() / 1000) * 1000 + 1000;
  let step = 0;
  const timer = setInterval(() => {
    for (; start + step * STEP <= Date.now(); step += 1) {
      const time = new Date(start + step * STEP);
      variables.forEach((variable, number) => {
        const value = { dataType: DataType.Double, value: 1000 * number + step / 4 };
        variable.setValueFromSource(value, StatusCodes.Good, time);
      });
    }
  }, STEP / 4);
  console.log(JSON.stringify({ namespace: own.index, start: start / 1000, step: STEP / 1000 }));

  process.once("SIGTERM", async () => {
    clearInterval(timer);
    await server.shutdown(0);
    process.exit(0);
  });
}

main(Number(process.argv[2]));
