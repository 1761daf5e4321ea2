import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.client.api.schema.RecordSchemaBuilder;
import org.apache.pulsar.client.api.schema.SchemaBuilder;
import org.apache.pulsar.client.impl.DefaultCryptoKeyReader;
import org.apache.pulsar.common.schema.SchemaType;

/**
 * Sends messages of every kind, and counts what a topic has, for `spark_outside.py`: nothing here is of this library.
 *
 * <p>send URL TOPIC KEYS [KIND FIRST COUNT]…: messages whose values or keys begin with "KIND:NUMBER:"; of a kind schemaN, the
 * values are records of version N.
 * count URL TOPIC KEYS: a line for each kind, "COUNT KIND MESSAGES DIGEST", where DIGEST is the sum of the messages' digests.
 * KEYS is a directory with public.pem and private.pem, for messages of the kind encrypted.
 */
public class SparkOutside {
    static final int CHUNK = 100 << 10;
    static final int CHUNKED = 230_000;

    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[1]).build()) {
            if (args[0].equals("count")) {
                count(client, args[2], keys(args[3]));
            }
            for (int index = 4; index < args.length; index += 3) {
                send(client, args[2], keys(args[3]), args[index], Long.parseLong(args[index + 1]),
                        Long.parseLong(args[index + 2]));
            }
        }
    }

    static CryptoKeyReader keys(String directory) {
        return DefaultCryptoKeyReader.builder().defaultPublicKey("file://" + directory + "/public.pem")
                .defaultPrivateKey("file://" + directory + "/private.pem").build();
    }

    static <T> ProducerBuilder<T> builder(PulsarClient client, Schema<T> schema, String topic) {
        return client.newProducer(schema).topic(topic).blockIfQueueFull(true).maxPendingMessages(5000)
                .batchingMaxBytes(CHUNK / 2).maxPendingMessagesAcrossPartitions(20_000).sendTimeout(0, TimeUnit.SECONDS)
                .messageRoutingMode(MessageRoutingMode.RoundRobinPartition);
    }

    static void send(PulsarClient client, String topic, CryptoKeyReader keys, String kind, long first, long count)
            throws Exception {
        if (kind.startsWith("schema")) {
            sendRecords(client, topic, Integer.parseInt(kind.substring("schema".length())), first, count);
        } else {
            sendBytes(client, topic, keys, kind, first, count);
        }
    }

    static void sendBytes(PulsarClient client, String topic, CryptoKeyReader keys, String kind, long first, long count)
            throws Exception {
        ProducerBuilder<byte[]> builder = builder(client, Schema.BYTES, topic);
        switch (kind) {
            case "plain", "null" -> builder.enableBatching(false);
            case "chunked" -> builder.enableBatching(false).enableChunking(true).maxPendingMessages(20);
            case "keyed" -> builder.batcherBuilder(BatcherBuilder.KEY_BASED);
            case "batched" -> builder.batchingMaxMessages(500);
            case "encrypted" -> builder.addEncryptionKey("app").cryptoKeyReader(keys);
            default -> builder.compressionType(CompressionType.valueOf(kind.toUpperCase()));
        }
        Random random = new Random(first);
        Sending sending = new Sending();
        try (Producer<byte[]> producer = builder.create()) {
            for (long number = first; number < first + count; number++) {
                String head = kind + ":" + number + ":";
                TypedMessageBuilder<byte[]> message = producer.newMessage();
                if (kind.equals("null")) {
                    message.key(head).value(null);
                } else {
                    int size = kind.equals("chunked") ? CHUNKED : head.length() + random.nextInt(120);
                    byte[] value = new byte[size];
                    random.nextBytes(value);
                    System.arraycopy(head.getBytes(StandardCharsets.UTF_8), 0, value, 0, head.length());
                    message.value(value);
                    if (kind.equals("keyed") || number % 4 != 0) {
                        message.key("key-" + number % 97);
                    }
                }
                if (number % 3 == 0) {
                    message.property("number", Long.toString(number)).property("ü", "ß");
                }
                if (number % 5 != 0) {
                    message.eventTime(1_000_000 + number);
                }
                if (number % 11 == 0) {
                    message.orderingKey("order".getBytes(StandardCharsets.UTF_8));
                }
                sending.add(message.sendAsync());
            }
            sending.finish(producer);
        }
    }

    static void sendRecords(PulsarClient client, String topic, int version, long first, long count) throws Exception {
        RecordSchemaBuilder fields = SchemaBuilder.record("Order");
        fields.field("number").type(SchemaType.INT64).required();
        if (version > 1) {
            fields.field("text").type(SchemaType.STRING).optional();
        }
        if (version > 2) {
            fields.field("amount").type(SchemaType.DOUBLE).optional();
        }
        GenericSchema<GenericRecord> schema = Schema.generic(fields.build(SchemaType.AVRO));
        Sending sending = new Sending();
        try (Producer<GenericRecord> producer = builder(client, schema, topic).create()) {
            for (long number = first; number < first + count; number++) {
                var record = schema.newRecordBuilder().set("number", number);
                if (version > 1) {
                    record.set("text", "text " + number);
                }
                if (version > 2) {
                    record.set("amount", number / 2.0);
                }
                sending.add(producer.newMessage().key("key-" + number % 97).value(record.build()).sendAsync());
            }
            sending.finish(producer);
        }
    }

    /** Sends in flight; the first failure ends the program. */
    static class Sending {
        private final AtomicReference<Throwable> failure = new AtomicReference<>();

        void add(CompletableFuture<MessageId> sent) throws Exception {
            sent.whenComplete((id, error) -> failure.compareAndSet(null, error));
            check();
        }

        void finish(Producer<?> producer) throws Exception {
            producer.flush();
            check();
        }

        private void check() throws Exception {
            if (failure.get() != null) {
                throw new Exception(failure.get());
            }
        }
    }

    static void count(PulsarClient client, String topic, CryptoKeyReader keys) throws Exception {
        Map<String, long[]> found = new TreeMap<>();
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest)
                .receiverQueueSize(5000).cryptoKeyReader(keys).create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(60, TimeUnit.SECONDS);
                if (message == null) {
                    throw new Exception("nothing came for 60 s, although there are messages");
                }
                byte[] value = message.size() == 0 && message.getValue() == null ? null : message.getData();
                long[] sums = found.computeIfAbsent(kindOf(message, value), kind -> new long[2]);
                sums[0]++;
                sums[1] += digest(sha, message, value);
            }
        }
        found.forEach((kind, sums) -> System.out.printf("COUNT %s %d %016x%n", kind, sums[0], sums[1]));
    }

    static String kindOf(Message<byte[]> message, byte[] value) {
        String head = value == null ? message.getKey()
                : new String(value, 0, Math.min(value.length, 40), StandardCharsets.ISO_8859_1);
        int end = head.indexOf(':');
        return end > 0 && head.indexOf(':', end + 1) > 0 && head.substring(0, end).matches("[a-z0-9]+")
                ? head.substring(0, end) : "record";
    }

    static long digest(MessageDigest sha, Message<byte[]> message, byte[] value) {
        add(sha, message.hasKey() ? message.getKey().getBytes(StandardCharsets.UTF_8) : null);
        add(sha, message.hasOrderingKey() ? message.getOrderingKey() : null);
        add(sha, Long.toString(message.getEventTime()).getBytes(StandardCharsets.UTF_8));
        new TreeMap<>(message.getProperties()).forEach((name, content) -> {
            add(sha, name.getBytes(StandardCharsets.UTF_8));
            add(sha, content.getBytes(StandardCharsets.UTF_8));
        });
        add(sha, value);
        byte[] found = sha.digest();
        long first = 0;
        for (int index = 0; index < 8; index++) {
            first = first << 8 | found[index] & 0xff;
        }
        return first;
    }

    static void add(MessageDigest sha, byte[] field) {
        sha.update(((field == null ? "-" : Integer.toString(field.length)) + ":").getBytes(StandardCharsets.UTF_8));
        if (field != null) {
            sha.update(field);
        }
    }
}
