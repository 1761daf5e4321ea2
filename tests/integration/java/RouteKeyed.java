import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Sends a message for each key, a line of the input each, and prints a tab between the number of the line and the
 * partition of its message.
 *
 * Arguments: settings of the client, topic, hashing scheme.
 */
public class RouteKeyed {
    public static void main(String[] args) throws Exception {
        BufferedReader keys = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (PulsarClient client = PulsarClient.builder().loadConf(settings(args[0])).build();
                Producer<byte[]> producer = client.newProducer().topic(args[1]).enableBatching(false)
                        .messageRoutingMode(MessageRoutingMode.RoundRobinPartition)
                        .hashingScheme(HashingScheme.valueOf(args[2])).create()) {
            int number = 0;
            for (String key = keys.readLine(); key != null; key = keys.readLine()) {
                String id = producer.newMessage().key(key).value(new byte[] {1}).send().toString();
                System.out.printf("ROUTE\t%d\t%s%n", number++, id.split(":")[2]);
            }
        }
    }

    /** The settings of a client, a line each. */
    static Map<String, Object> settings(String text) {
        return text.lines().map(line -> line.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> (Object) pair[1]));
    }
}
