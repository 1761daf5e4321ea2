import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/**
 * Reads lines of topic and id bytes, tab-separated, goes to each id by a reader's start and by a seek, and prints the
 * id's text, its bytes as Java writes them, and what was found: name and length of the payload, or "nothing".
 */
public class ReadIds {
    /** Argument: settings of the client. */
    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().loadConf(settings(args[0])).build()) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] fields = line.split("\t");
                MessageId id = MessageId.fromByteArray(HexFormat.of().parseHex(fields[1]));
                String bytes = HexFormat.of().formatHex(id.toByteArray());
                String read = describe(read(client, fields[0], id));
                String sought = describe(seek(client, fields[0], id));
                System.out.printf("ID\t%s\t%s\t%s\t%s%n", id, bytes, read, sought);
            }
        }
    }

    static Message<byte[]> read(PulsarClient client, String topic, MessageId id) throws Exception {
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(id).startMessageIdInclusive()
                .create()) {
            return reader.readNext(10, TimeUnit.SECONDS);
        }
    }

    static Message<byte[]> seek(PulsarClient client, String topic, MessageId id) throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("java")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).startMessageIdInclusive()
                .subscribe()) {
            consumer.seek(id);
            return consumer.receive(10, TimeUnit.SECONDS);
        }
    }

    static String describe(Message<byte[]> message) {
        if (message == null) {
            return "nothing";
        }
        String text = new String(message.getData(), StandardCharsets.UTF_8);
        return text.substring(0, text.indexOf(';')) + " " + text.length();
    }

    /** The settings of a client, a line each. */
    static Map<String, Object> settings(String lines) {
        return Arrays.stream(lines.split("\n")).map(line -> line.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> (Object) pair[1]));
    }
}
