import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.serialization.*;

/** Calls of Kafka's clients, each with a line that tells its outcome: what must be the same whatever broker answers. */
public class Calls {
    interface Call { Object make() throws Exception; }

    static final String TOPIC = "calls", OTHER = "calls-other";
    static String address;

    /** Prints the result, or the class of the innermost exception. */
    static void call(String name, Call call) {
        String outcome;
        try {
            outcome = String.valueOf(call.make());
        } catch (Throwable error) {
            while (error.getCause() != null && error != error.getCause()) error = error.getCause();
            outcome = error.getClass().getSimpleName();
        }
        System.out.println(name + ": " + outcome);
    }

    /** A broker of Kafka acts on a change a little after its answer. */
    static void until(Callable<Boolean> holds) throws Exception {
        for (long end = System.currentTimeMillis() + 20_000; System.currentTimeMillis() < end; Thread.sleep(20)) {
            try {
                if (holds.call()) return;
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) throw error;
            }
        }
    }

    static Map<String, Object> settings(Object... more) {
        Map<String, Object> all = new HashMap<>(Map.of(
            "bootstrap.servers", address, "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class,
            "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class));
        for (int i = 0; i < more.length; i += 2) all.put((String) more[i], more[i + 1]);
        return all;
    }

    static KafkaProducer<String, String> producer(Object... more) { return new KafkaProducer<>(settings(more)); }

    static KafkaConsumer<String, String> consumer(Object... more) {
        Map<String, Object> all = settings("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        all.putAll(settings(more));
        return new KafkaConsumer<>(all);
    }

    static ProducerRecord<String, String> record(int partition, String value) { return new ProducerRecord<>(TOPIC, partition, "k", value); }

    /** How many records are read until there were that many. */
    static int read(Consumer<String, String> from, int wanted) {
        int count = 0;
        for (long end = System.currentTimeMillis() + 20_000; count < wanted && System.currentTimeMillis() < end; )
            count += from.poll(Duration.ofMillis(100)).count();
        return count;
    }

    static TreeMap<String, Long> byName(Map<TopicPartition, Long> offsets) {
        TreeMap<String, Long> named = new TreeMap<>();
        offsets.forEach((partition, offset) -> named.put(partition.toString(), offset));
        return named;
    }

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        try (Admin admin = Admin.create(settings())) {
            topics(admin);
            records(admin);
            groups(admin);
            cluster(admin);
            sharing(admin);
            call("deleteTopics", () -> admin.deleteTopics(List.of(TOPIC, OTHER)).all().get());
            call("deleteTopics, an unknown one", () -> admin.deleteTopics(List.of("calls-none")).all().get());
        }
        System.exit(0);
    }

    static void topics(Admin admin) throws Exception {
        NewTopic three = new NewTopic(TOPIC, 3, (short) 1).configs(Map.of("retention.ms", "-1"));
        call("createTopics", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(three, new NewTopic(OTHER, Optional.of(1), Optional.empty())));
            made.all().get();
            return made.numPartitions(TOPIC).get() + " " + made.replicationFactor(TOPIC).get() + " " + made.config(TOPIC).get().get("retention.ms").value();
        });
        call("createTopics, again", () -> admin.createTopics(List.of(three)).all().get());
        call("createTopics, an invalid name", () -> admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all().get());
        call("createTopics, two replicas", () -> admin.createTopics(List.of(new NewTopic("calls-two", 1, (short) 2))).all().get());
        call("createTopics, to validate", () -> admin.createTopics(List.of(new NewTopic("calls-two", 1, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all().get());
        until(() -> partitions(admin) == 3);
        call("listTopics", () -> admin.listTopics().names().get().stream().filter(name -> name.startsWith(TOPIC)).sorted().toList());
        call("describeTopics", () -> {
            TopicDescription found = admin.describeTopics(List.of(TOPIC), new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().get(TOPIC);
            return found.partitions().size() + " " + found.isInternal() + " " + found.partitions().get(2).isr().size() + " " + new TreeSet<>(found.authorizedOperations());
        });
        call("describeTopics, by id", () -> {
            Uuid id = admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).topicId();
            return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name();
        });
        call("describeTopics, an unknown one", () -> admin.describeTopics(List.of("calls-none")).allTopicNames().get());
        call("createPartitions", () -> admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(4))).all().get());
        until(() -> partitions(admin) == 4);
        call("createPartitions, fewer", () -> admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(2))).all().get());
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        call("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("max.message.bytes", "5000"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all().get());
        call("incrementalAlterConfigs, a bad value", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("segment.bytes", "x"), AlterConfigOp.OpType.SET)))).all().get());
        until(() -> config(admin, topic, "cleanup.policy").equals("delete,compact"));
        call("describeConfigs", () -> {
            Config found = admin.describeConfigs(List.of(topic)).all().get().get(topic);
            return Stream.of("max.message.bytes", "cleanup.policy", "retention.ms", "segment.ms").map(found::get)
                .map(entry -> entry.name() + "=" + entry.value() + " " + entry.source() + " " + entry.type()).toList();
        });
        call("describeConfigs, an unknown topic", () -> admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.TOPIC, "calls-none"))).all().get());
        call("incrementalAlterConfigs, removed", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("cleanup.policy", ""), AlterConfigOp.OpType.DELETE)))).all().get());
        until(() -> config(admin, topic, "cleanup.policy").equals("delete"));
    }

    static int partitions(Admin admin) throws Exception {
        return admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).partitions().size();
    }

    static String config(Admin admin, ConfigResource topic, String key) throws Exception {
        return admin.describeConfigs(List.of(topic)).all().get().get(topic).get(key).value();
    }

    static void records(Admin admin) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            call("send, " + codec, () -> {
                try (var producer = producer("compression.type", codec, "linger.ms", 5)) {
                    for (int i = 0; i < 9; i++) producer.send(record(0, "v" + i));
                    return producer.send(new ProducerRecord<>(TOPIC, 0, 1_700_000_000_000L, null, "last", List.of(new RecordHeader("h", null)))).get();
                }
            });
        try (var producer = producer("max.block.ms", 3000)) {
            call("send, too large", () -> producer.send(record(0, "x".repeat(6000))).get());
            call("send, an invalid topic", () -> producer.send(new ProducerRecord<>("a b", "v")).get());
            call("partitionsFor", () -> producer.partitionsFor(TOPIC).size());
        }
        try (var first = producer("transactional.id", "calls"); var second = producer("transactional.id", "calls")) {
            call("initTransactions", () -> { first.initTransactions(); return "done"; });
            call("commitTransaction", () -> {
                first.beginTransaction();
                long offset = first.send(record(1, "committed")).get().offset();
                first.sendOffsetsToTransaction(Map.of(new TopicPartition(TOPIC, 0), new OffsetAndMetadata(7, "m")), new ConsumerGroupMetadata("calls-txn"));
                first.commitTransaction();
                return offset;
            });
            call("abortTransaction", () -> {
                first.beginTransaction();
                long offset = first.send(record(1, "aborted")).get().offset();
                first.abortTransaction();
                return offset;
            });
            call("describeTransactions", () -> {
                TransactionDescription found = admin.describeTransactions(List.of("calls")).all().get().get("calls");
                return found.state() + " " + found.transactionTimeoutMs() + " " + found.topicPartitions();
            });
            call("listTransactions", () -> admin.listTransactions().all().get().stream().map(TransactionListing::transactionalId).filter("calls"::equals).toList());
            call("describeProducers", () -> admin.describeProducers(List.of(new TopicPartition(TOPIC, 1))).all().get().values().iterator().next().activeProducers().size());
            call("initTransactions, another one", () -> { second.initTransactions(); return "done"; });
            call("commitTransaction, fenced", () -> {
                first.beginTransaction();
                first.send(record(1, "fenced"));
                first.commitTransaction();
                return "done";
            });
            call("fenceProducers", () -> admin.fenceProducers(List.of("calls")).all().get());
        }
        call("listOffsets", () -> {
            Map<String, Object> found = new TreeMap<>();
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1_600_000_000_000L)))
                found.put(spec.getClass().getSimpleName(), admin.listOffsets(Map.of(new TopicPartition(TOPIC, 0), spec)).all().get().values().iterator().next().offset() >= 0);
            return found;
        });
        call("deleteRecords", () -> admin.deleteRecords(Map.of(new TopicPartition(TOPIC, 0), RecordsToDelete.beforeOffset(5))).all().get());
        call("deleteRecords, after the end", () -> admin.deleteRecords(Map.of(new TopicPartition(TOPIC, 0), RecordsToDelete.beforeOffset(5000))).all().get());
    }

    static void groups(Admin admin) throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String group = "calls-" + protocol;
            try (var consumer = consumer("group.id", group, "group.protocol", protocol)) {
                consumer.subscribe(List.of(TOPIC));
                call("poll, " + protocol, () -> read(consumer, 47) + " " + consumer.assignment().stream().map(String::valueOf).sorted().toList());
                call("commitSync, " + protocol, () -> { consumer.commitSync(); return consumer.committed(Set.of(new TopicPartition(TOPIC, 0))).values(); });
                call("describeConsumerGroups, " + protocol, () -> {
                    ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                    return found.type() + " " + found.groupState() + " " + found.partitionAssignor() + " " + found.members().size() + " "
                        + found.members().iterator().next().assignment().topicPartitions().size();
                });
                call("deleteConsumerGroups, not empty, " + protocol, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            }
            call("listConsumerGroupOffsets, " + protocol, () -> {
                Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                return found.get(new TopicPartition(TOPIC, 0)).offset() + " of " + found.size();
            });
        }
        try (var consumer = consumer("isolation.level", "read_committed")) {
            List<TopicPartition> one = List.of(new TopicPartition(TOPIC, 1));
            consumer.assign(one);
            call("poll, read_committed", () -> read(consumer, 1) + " " + consumer.poll(Duration.ofMillis(300)).count());
            call("beginningOffsets, endOffsets", () -> byName(consumer.beginningOffsets(one)) + " " + byName(consumer.endOffsets(one)));
            call("offsetsForTimes", () -> consumer.offsetsForTimes(Map.of(one.get(0), 1L)).get(one.get(0)).offset());
            call("seek after the end", () -> { consumer.seek(one.get(0), 5000); return read(consumer, 1); });
        }
        call("poll, no reset", () -> {
            try (var consumer = consumer("auto.offset.reset", "none", "group.id", "calls-none")) {
                consumer.subscribe(List.of(OTHER));
                return read(consumer, 1);
            }
        });
        call("listGroups", () -> admin.listGroups().all().get().stream().filter(each -> each.groupId().startsWith("calls-") && !each.groupId().equals("calls-none"))
            .map(each -> each.groupId() + " " + each.type().orElse(null) + " " + each.groupState().orElse(null)).sorted().toList());
        TopicPartition zero = new TopicPartition(TOPIC, 0);
        call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("calls-classic", Map.of(zero, new OffsetAndMetadata(9))).all().get());
        call("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("calls-classic", Set.of(zero)).all().get());
        call("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("calls-classic", "calls-consumer", "calls-txn")).all().get());
        call("deleteConsumerGroups, an unknown one", () -> admin.deleteConsumerGroups(List.of("calls-unknown")).all().get());
    }

    static void cluster(Admin admin) throws Exception {
        call("describeCluster", () -> {
            DescribeClusterResult found = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return found.nodes().get().size() + " " + found.controller().get().id() + " " + new TreeSet<AclOperation>(found.authorizedOperations().get());
        });
        call("describeFeatures", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version").maxVersionLevel());
        call("describeLogDirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().iterator().next().replicaInfos().keySet().stream()
            .filter(each -> each.topic().equals(TOPIC)).count());
        call("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(new TopicPartition(TOPIC, 0))).partitions().get().values().iterator().next().map(error -> error.getClass().getSimpleName()));
        call("electLeaders, all", () -> admin.electLeaders(ElectionType.UNCLEAN, null).partitions().get().size());
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
        call("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().voters().size());
        call("listConfigResources", () -> admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions()).all().get().stream()
            .filter(each -> each.name().startsWith(TOPIC)).count());
        call("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        call("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
        call("describeAcls", () -> admin.describeAcls(org.apache.kafka.common.acl.AclBindingFilter.ANY).values().get());
        call("unregisterBroker, an unknown one", () -> admin.unregisterBroker(99).all().get());
    }

    /** Share groups, of which plog has none. */
    static void sharing(Admin admin) throws Exception {
        call("share poll", () -> {
            try (var consumer = new KafkaShareConsumer<String, String>(settings("group.id", "calls-share"))) {
                consumer.subscribe(List.of(TOPIC));
                consumer.poll(Duration.ofMillis(3000));
                return consumer.subscription();
            }
        });
        call("share describeShareGroups", () -> admin.describeShareGroups(List.of("calls-share")).all().get().keySet());
        call("share listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of("calls-share", new ListShareGroupOffsetsSpec())).all().get().keySet());
        call("share deleteShareGroups", () -> admin.deleteShareGroups(List.of("calls-share")).all().get());
    }
}
