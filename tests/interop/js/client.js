// A kafkajs client that does what teams do with one: `node client.js first ADDRESS`, then, once the broker was
// restarted, `node client.js second ADDRESS`. It prints what it saw as JSON; anything that fails ends it with code 1.
// `PLOG_TESTS_WAY` in the environment says how it authenticates: what tests/support/ways_in.py writes.
import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;

const TOPIC = "js";
const GROUP = "js-group";
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };
const PER_CODEC = 100;
const TO_COMMIT = 80;
const ALL = PER_CODEC * Object.keys(CODECS).length;

const [phase, address] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "js", brokers: [address], logLevel: logLevel.NOTHING, ...wayIn() });

setTimeout(() => fail(new Error("timed out")), 200_000).unref();

function wayIn() {
  if (!process.env.PLOG_TESTS_WAY) return {};
  const { ca, mechanism, user: username, password, certificate } = JSON.parse(process.env.PLOG_TESTS_WAY);
  const own = certificate ? readFileSync(certificate, "utf-8") : undefined;
  const ssl = { ca: [readFileSync(ca, "utf-8")], cert: own, key: own };
  return { ssl, ...(mechanism && { sasl: { mechanism: mechanism.toLowerCase(), username, password } }) };
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

async function produce() {
  const producer = kafka.producer({ allowAutoTopicCreation: false });
  await producer.connect();
  for (const [name, compression] of Object.entries(CODECS)) {
    const messages = [...Array(PER_CODEC).keys()].map((n) => ({
      key: `key-${n % 7}`,
      value: `${name}-${n}`,
      headers: { codec: name },
    }));
    await producer.send({ topic: TOPIC, compression, acks: -1, messages });
  }
  await producer.disconnect();
}

function newConsumer(groupId) {
  return kafka.consumer({ groupId, heartbeatInterval: 200, sessionTimeout: 10_000, maxWaitTimeInMs: 100 });
}

// Reads `count` records; what it then has read of each partition is committed where `commits`.
async function read(groupId, count, commits) {
  const consumer = newConsumer(groupId);
  await consumer.connect();
  await consumer.subscribe({ topic: TOPIC, fromBeginning: true });
  const values = [];
  const next = {};
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          if (values.length === count) return;
          if (message.headers.codec.toString() !== message.value.toString().split("-")[0]) reject(new Error("headers"));
          values.push(message.value.toString());
          next[partition] = (BigInt(message.offset) + 1n).toString();
          if (values.length === count) resolve();
        },
      })
      .catch(reject);
  });
  if (commits) {
    const offsets = Object.entries(next).map(([partition, offset]) => ({ topic: TOPIC, partition: +partition, offset }));
    await consumer.commitOffsets(offsets);
  }
  await consumer.disconnect();
  return values.sort();
}

// Joins the group; gives how many partitions it has whenever that changes.
async function member() {
  const consumer = newConsumer("js-rebalance");
  const changes = [];
  let wake = () => {};
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    changes.push((payload.memberAssignment[TOPIC] ?? []).length);
    wake();
  });
  await consumer.connect();
  await consumer.subscribe({ topic: TOPIC, fromBeginning: true });
  await consumer.run({ eachMessage: async () => {} });
  const waitFor = async (isGood) => {
    for (;;) {
      while (changes.length > 0) {
        const owned = changes.shift();
        if (isGood(owned)) return owned;
      }
      await new Promise((resolve) => (wake = resolve));
    }
  };
  return { consumer, waitFor };
}

async function rebalance() {
  const first = await member();
  const alone = await first.waitFor((n) => n === 3);
  const second = await member();
  const joined = await second.waitFor((n) => n > 0);
  const left = await first.waitFor((n) => n === 3 - joined);
  await second.consumer.disconnect();
  const again = await first.waitFor((n) => n === 3);
  await first.consumer.disconnect();
  return { alone, joined, left, again };
}

const sum = (offsets) => offsets.reduce((total, { offset }) => total + Math.max(+offset, 0), 0);

async function administer(admin) {
  const resource = { type: ConfigResourceTypes.TOPIC, name: TOPIC };
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: "segment.ms", value: "777" }] }] });
  const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] });
  const { groups } = await admin.describeGroups([GROUP]);
  const [{ partitions: committed }] = await admin.fetchOffsets({ groupId: GROUP, topics: [TOPIC] });
  await admin.createPartitions({ topicPartitions: [{ topic: TOPIC, count: 4 }] });
  const { topics } = await admin.fetchTopicMetadata({ topics: [TOPIC] });
  return {
    "segment.ms": resources[0].configEntries.find(({ configName }) => configName === "segment.ms").configValue,
    ends: sum(await admin.fetchTopicOffsets(TOPIC)),
    state: groups[0].state,
    committed: sum(committed),
    listed: (await admin.listGroups()).groups.some(({ groupId }) => groupId === GROUP),
    brokers: (await admin.describeCluster()).brokers.length,
    partitions: topics[0].partitions.length,
  };
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  const seen = {};
  if (phase === "first") {
    await admin.createTopics({ topics: [{ topic: TOPIC, numPartitions: 3 }], waitForLeaders: true });
    await produce();
    seen.values = await read("js-all", ALL, false);
    seen.rebalance = await rebalance();
    seen.committed = (await read(GROUP, TO_COMMIT, true)).length;
  } else {
    seen.admin = await administer(admin);
    seen.rest = await read(GROUP, ALL - TO_COMMIT, true);
    await admin.deleteGroups([GROUP]);
    await admin.deleteTopics({ topics: [TOPIC] });
  }
  await admin.disconnect();
  console.log(JSON.stringify(seen));
}

main().then(() => process.exit(0), fail);
