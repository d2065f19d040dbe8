// Commits transactions of one record with Kafka's own producer, and prints how many nanoseconds each took:
// java -cp JARS OneRecordTransactions.java ADDRESS TOPIC COUNT. For benchmarks/transactions.py.

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class OneRecordTransactions {
    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[1]);
        settings.put("linger.ms", "0");
        long[] took = new long[count];
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int turn = -count / 10; turn < count; turn++) { // the first are for the compiler, and are not counted
                long started = System.nanoTime();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(arguments[1], 0, "key".getBytes(), new byte[200]));
                producer.commitTransaction();
                if (turn >= 0) {
                    took[turn] = System.nanoTime() - started;
                }
            }
        } catch (RuntimeException problem) { // the launcher would hide it
            problem.printStackTrace();
            System.exit(1);
        }
        StringBuilder said = new StringBuilder();
        for (long one : took) {
            said.append(one).append('\n');
        }
        System.out.print(said);
    }
}
