import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Receives so many messages of a subscription with retry letters, prints each one's payload up to its first dot, length,
 * key, event time, topic and properties, and has it consumed later; or receives them only, for a maximum of 0.
 *
 * Arguments: settings of the client, topic, subscription, type, maximum of redeliveries, number of messages.
 */
public class Reconsume {
    public static void main(String[] args) throws Exception {
        int most = Integer.parseInt(args[4]);
        try (PulsarClient client = PulsarClient.builder().loadConf(settings(args[0])).build();
                Consumer<byte[]> consumer = client.newConsumer().topic(args[1]).subscriptionName(args[2])
                        .subscriptionType(SubscriptionType.valueOf(args[3])).enableRetry(most > 0)
                        .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(Math.max(most, 1)).build())
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            for (int number = Integer.parseInt(args[5]); number > 0; number--) {
                Message<byte[]> message = consumer.receive(20, TimeUnit.SECONDS);
                String text = new String(message.getData(), StandardCharsets.UTF_8);
                System.out.printf("ID\t%s\t%d\t%s\t%d\t%s\t%s%n", text.substring(0, text.indexOf('.')), text.length(),
                        message.getKey(), message.getEventTime(), message.getTopicName(), properties(message));
                if (most > 0) {
                    consumer.reconsumeLater(message, Map.of("by", "java"), 100, TimeUnit.MILLISECONDS);
                } else {
                    consumer.acknowledge(message);
                }
            }
        }
    }

    static String properties(Message<byte[]> message) {
        return new TreeMap<>(message.getProperties()).entrySet().stream()
                .map(one -> one.getKey() + "=" + one.getValue()).collect(Collectors.joining(" "));
    }

    /** The settings of a client, a line each. */
    static Map<String, Object> settings(String text) {
        return text.lines().map(line -> line.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> (Object) pair[1]));
    }
}
