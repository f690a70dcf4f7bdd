// Subscribe to the alarms of an OPC UA server, and print each event as a line of JSON.
// Usage: node node_opcua_alarms.js URL COUNT. Prints "ready" once it is subscribed, and ends after COUNT events.
"use strict";

const {
  AttributeIds, ClientSubscription, ClientMonitoredItem, OPCUAClient, TimestampsToReturn, constructEventFilter,
} = require("node-opcua-client");

const FIELDS = [
  "EventType", "SourceName", "Message", "Severity", "ConditionName", "Retain", "ActiveState.Id", "AckedState.Id",
  "SuppressedOrShelved", "Comment", "ClientUserId",
];

async function main(url, count) {
  const client = OPCUAClient.create({ endpointMustExist: false });
  await client.connect(url);
  const session = await client.createSession();
  const subscription = ClientSubscription.create(session, {
    requestedPublishingInterval: 50, requestedLifetimeCount: 1000, requestedMaxKeepAliveCount: 10, publishingEnabled: true,
  });
  const item = ClientMonitoredItem.create(
    subscription,
    { nodeId: "ns=0;i=2253", attributeId: AttributeIds.EventNotifier },
    { queueSize: 1000, filter: constructEventFilter(FIELDS) },
    TimestampsToReturn.Both,
  );
  let seen = 0;
  item.on("changed", async (values) => {
    const event = {};
    values.forEach((variant, i) => {
      const value = variant.value;
      event[FIELDS[i]] = value === null || typeof value !== "object" ? value : (value.text ?? value.toString());
    });
    console.log(JSON.stringify(event));
    seen += 1;
    if (seen === count) {
      await session.close();
      await client.disconnect();
    }
  });
  item.on("initialized", () => console.log("ready"));
}

main(process.argv[2], Number(process.argv[3])).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
