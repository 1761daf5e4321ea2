import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;

/** Sends messages of every kind and prints, tab-separated: kind, name (how the payload begins), id bytes, id text. */
public class MakeIds {
    static final int CHUNKED_SIZE = 250_000;

    /** Arguments: settings of the client, topic, partitioned topic. */
    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().loadConf(settings(args[0])).build()) {
            ProducerBuilder<byte[]> single = client.newProducer(Schema.BYTES).topic(args[1]).enableBatching(false);
            ProducerBuilder<byte[]> batched = client.newProducer(Schema.BYTES).topic(args[1])
                    .batchingMaxPublishDelay(1, TimeUnit.MINUTES);
            try (Producer<byte[]> plain = single.create();
                    Producer<byte[]> chunked = single.clone().enableChunking(true).create();
                    Producer<byte[]> batches = batched.create()) {
                for (int round = 0; round < 2; round++) {
                    print("plain", "plain-" + round, plain.send(payload("plain-" + round, 0)));
                    List<CompletableFuture<MessageId>> batch = new ArrayList<>();
                    for (int index = 0; index < 4; index++) {
                        batch.add(batches.sendAsync(payload("batch-" + round + "-" + index, 0)));
                    }
                    batches.flush();
                    for (int index = 0; index < batch.size(); index++) {
                        print("batch", "batch-" + round + "-" + index, batch.get(index).get());
                    }
                    print("chunked", "chunked-" + round, chunked.send(payload("chunked-" + round, CHUNKED_SIZE)));
                }
            }
            try (Producer<byte[]> parts = client.newProducer(Schema.BYTES).topic(args[2]).enableBatching(false)
                    .enableChunking(true).create()) {
                for (int number = 0; number < 6; number++) {
                    String name = "part-" + number;
                    print("partitioned", name, parts.send(payload(name, number < 3 ? 0 : CHUNKED_SIZE)));
                }
            }
        }
    }

    static byte[] payload(String name, int size) {
        return (name + ";" + "x".repeat(size)).getBytes(StandardCharsets.UTF_8);
    }

    static void print(String kind, String name, MessageId id) {
        System.out.printf("ID\t%s\t%s\t%s\t%s%n", kind, name, HexFormat.of().formatHex(id.toByteArray()), id);
    }

    /** The settings of a client, a line each. */
    static Map<String, Object> settings(String lines) {
        return Arrays.stream(lines.split("\n")).map(line -> line.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> (Object) pair[1]));
    }
}
