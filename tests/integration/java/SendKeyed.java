import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;

/**
 * Send messages with every kind of key. Arguments: settings of the client, topic, how many rounds, then one of "unbatched",
 * "default" (one batch a round) and "key". The payload of each message is its number.
 */
public class SendKeyed {
    public static void main(String[] args) throws Exception {
        var rounds = Integer.parseInt(args[2]);
        var builder = PulsarClient.builder().loadConf(settings(args[0]));
        try (var client = builder.build()) {
            var settings = client.newProducer(Schema.BYTES).topic(args[1]).blockIfQueueFull(true)
                    .enableBatching(!args[3].equals("unbatched")).batchingMaxPublishDelay(1, TimeUnit.MINUTES)
                    .batcherBuilder(args[3].equals("key") ? BatcherBuilder.KEY_BASED : BatcherBuilder.DEFAULT);
            try (var producer = settings.create()) {
                int number = 0;
                for (int round = 0; round < rounds; round++) {
                    for (int kind = 0; kind < 8; kind++) {
                        var message = producer.newMessage().value(Integer.toString(number++).getBytes());
                        var text = String.format("key%05d", round);
                        var bytes = new byte[] {(byte) 0xff, (byte) 0xfe, (byte) round, (byte) (round >> 8), 7, 7};
                        switch (kind) {
                            case 0 -> message.key(text);
                            case 1 -> message.keyBytes(bytes);
                            case 2 -> message.key(java.util.Base64.getEncoder().encodeToString(bytes));
                            case 3 -> message.key("");
                            case 4 -> message.orderingKey(bytes).key(text);
                            case 5 -> message.orderingKey(text.getBytes()).keyBytes(bytes);
                            case 6 -> message.key("中文-é-😀-" + round);
                            default -> { }
                        }
                        message.sendAsync();
                    }
                    if (!args[3].equals("unbatched")) {
                        producer.flush();
                    }
                }
                producer.flush();
            }
        }
    }

    /** The settings of a client, a line each. */
    static Map<String, Object> settings(String lines) {
        return Arrays.stream(lines.split("\n")).map(line -> line.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> (Object) pair[1]));
    }
}
