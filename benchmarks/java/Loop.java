import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** Receives or sends messages as `benchmarks/loop.py` does; prints nanoseconds a message: of the thread, of the process. */
public class Loop {
    private static final int ROUNDS = 3; // the last one, when the code is compiled, counts

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        String way = arguments[2];
        int messages = Integer.parseInt(arguments[3]);
        var threads = ManagementFactory.getThreadMXBean();
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (int round = 1; round <= ROUNDS; round++) {
                if (way.equals("send")) {
                    send(client, topic, messages, round == ROUNDS);
                    continue;
                }
                var consumer = client.newConsumer().topic(topic).subscriptionName("java-" + System.nanoTime())
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
                long seen = 0;
                consumer.receive();
                long thread = threads.getCurrentThreadCpuTime();
                long process = system.getProcessCpuTime();
                for (int at = 0; at < messages; at++) {
                    Message<byte[]> message = consumer.receive();
                    if (way.equals("value")) {
                        seen += message.getValue().length;
                    } else if (!way.equals("receive")) {
                        seen += message.getData().length + message.getKey().length() + message.getProperties().size()
                                + message.getPublishTime() + message.getEventTime() + message.getRedeliveryCount()
                                + message.getMessageId().hashCode();
                    }
                    if (way.equals("acknowledge")) {
                        consumer.acknowledgeAsync(message);
                    }
                }
                thread = (threads.getCurrentThreadCpuTime() - thread) / messages;
                process = (system.getProcessCpuTime() - process) / messages;
                if (round == ROUNDS) {
                    System.out.println("RESULT " + thread + " " + process + " " + seen);
                }
                consumer.close();
            }
        }
    }

    private static void send(PulsarClient client, String topic, int messages, boolean counts) throws Exception {
        var producer = client.newProducer().topic(topic).batchingMaxMessages(1000).batchingMaxBytes(1 << 20)
                .batchingMaxPublishDelay(10, TimeUnit.MILLISECONDS).maxPendingMessages(20_000).blockIfQueueFull(true).create();
        var reported = new AtomicLong();
        byte[] data = "x".repeat(100).getBytes();
        var threads = ManagementFactory.getThreadMXBean();
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long thread = threads.getCurrentThreadCpuTime();
        long process = system.getProcessCpuTime();
        for (int at = 0; at < messages; at++) {
            producer.sendAsync(data).thenAccept(id -> reported.incrementAndGet());
        }
        producer.flush();
        thread = (threads.getCurrentThreadCpuTime() - thread) / messages;
        process = (system.getProcessCpuTime() - process) / messages;
        if (counts) {
            System.out.println("RESULT " + thread + " " + process + " " + reported.get());
        }
        producer.close();
    }
}
