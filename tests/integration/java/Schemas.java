import com.google.protobuf.Timestamp;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericObject;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * Sends one message of each kind of schema, each to a topic of its own; or reads them, and prints what they are, by the
 * schema itself and by AUTO_CONSUME.
 *
 * Arguments: settings of the client, "send" or "read", the beginning of the topics' names.
 */
public class Schemas {
    public enum Status { OPEN, PAID }

    public static class Item {
        public String sku;
        public int count;
    }

    public static class Order {
        public long id;
        public String name;
        public Instant placed;
        public BigDecimal total;
        public UUID uid;
        public Status status;
        public List<Item> items;
        public Map<String, Double> weights;
        public byte[] picture;
        public LocalDate due;

        @Override
        public String toString() {
            return String.join(" ", "" + id, name, "" + placed, "" + total, "" + uid, "" + status,
                    items.stream().map(one -> one.sku + "x" + one.count).collect(Collectors.joining(",")),
                    "" + new TreeMap<>(weights), HexFormat.of().formatHex(picture), "" + due);
        }
    }

    static Order order() {
        Order order = new Order();
        order.id = 7;
        order.name = "Ünï";
        order.placed = Instant.ofEpochSecond(1_700_000_000L, 123_456_000);
        order.total = new BigDecimal("12.500");
        order.uid = new UUID(1, 2);
        order.status = Status.PAID;
        Item item = new Item();
        item.sku = "a";
        item.count = 3;
        order.items = List.of(item);
        order.weights = Map.of("w", 0.5);
        order.picture = new byte[] {0, 1, (byte) 200};
        order.due = LocalDate.of(2030, 1, 2);
        return order;
    }

    static Map<String, Schema<?>> schemas() {
        Map<String, Schema<?>> found = new TreeMap<>();
        found.put("avro", Schema.AVRO(Order.class));
        found.put("json", Schema.JSON(Order.class));
        found.put("inline", Schema.KeyValue(Schema.STRING, Schema.JSON(Order.class), KeyValueEncodingType.INLINE));
        found.put("separated", Schema.KeyValue(Schema.JSON(Item.class), Schema.JSON(Order.class),
                KeyValueEncodingType.SEPARATED));
        found.put("protobuf", Schema.PROTOBUF_NATIVE(Timestamp.class));
        return found;
    }

    static Object value(String kind) {
        return switch (kind) {
            case "inline" -> new KeyValue<>("abcd", order());
            case "separated" -> new KeyValue<>(order().items.get(0), order());
            case "protobuf" -> Timestamp.newBuilder().setSeconds(5).setNanos(6).build();
            default -> order();
        };
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().loadConf(settings(args[0])).build()) {
            for (Map.Entry<String, Schema<?>> one : schemas().entrySet()) {
                String topic = args[2] + one.getKey();
                if (args[1].equals("send")) {
                    try (Producer producer = client.newProducer((Schema) one.getValue()).topic(topic).create()) {
                        producer.send(value(one.getKey()));
                    }
                    if (one.getKey().equals("avro")) {  // which this library reads, but does not send
                        try (Producer<KeyValue<Item, Order>> producer = client.newProducer(Schema.KeyValue(
                                Schema.AVRO(Item.class), Schema.AVRO(Order.class))).topic(args[2] + "keyed-avro").create()) {
                            producer.send(new KeyValue<>(order().items.get(0), order()));
                        }
                    }
                    continue;
                }
                System.out.printf("READ\t%s\t%s%n", one.getKey(), shown(read(client, topic, one.getValue())));
                System.out.printf("AUTO\t%s\t%s%n", one.getKey(), shown(read(client, topic, Schema.AUTO_CONSUME())));
            }
        }
    }

    static <T> T read(PulsarClient client, String topic, Schema<T> schema) throws Exception {
        try (Reader<T> reader = client.newReader(schema).topic(topic).startMessageId(MessageId.earliest).create()) {
            Message<T> message = reader.readNext(20, TimeUnit.SECONDS);
            return message.getValue();
        }
    }

    static String shown(Object value) {
        if (value instanceof GenericRecord record) {
            return record.getSchemaType() + record.getFields().stream().map(field -> field.getName()).sorted().toList()
                    .toString();
        }
        if (value instanceof GenericObject object) {
            return object.getSchemaType() + " " + shown(object.getNativeObject());
        }
        if (value instanceof KeyValue<?, ?> pair) {
            return shown(pair.getKey()) + " / " + shown(pair.getValue());
        }
        if (value instanceof Item item) {
            return item.sku + "x" + item.count;
        }
        return value.toString().replace('\n', ' ');
    }

    /** The settings of a client, a line each. */
    static Map<String, Object> settings(String text) {
        return text.lines().map(line -> line.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> (Object) pair[1]));
    }
}
