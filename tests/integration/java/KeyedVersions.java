import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * Sends keys and values of two versions, in which another field is the first one, and a message without a value.
 *
 * Arguments: settings of the client, and for each topic: its name, INLINE or SEPARATED, AVRO or JSON.
 */
public class KeyedVersions {
    public static class First {
        public static class Id {
            public String region;
        }

        public static class City {
            public String name;
            public byte[] flag;
        }
    }

    public static class Second {
        public static class Id {
            public String country;
            public String region;
        }

        public static class City {
            public String area;
            public String name;
            public byte[] flag;
        }
    }

    static <T> Schema<T> of(Class<T> type, String kind) {
        return kind.equals("JSON") ? Schema.JSON(type) : Schema.AVRO(type);
    }

    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().loadConf(Schemas.settings(args[0])).build()) {
            for (int at = 1; at < args.length; at += 3) {
                send(client, args[at], KeyValueEncodingType.valueOf(args[at + 1]), args[at + 2]);
            }
        }
    }

    static void send(PulsarClient client, String topic, KeyValueEncodingType encoding, String kind) throws Exception {
        First.Id id = new First.Id();
        First.City city = new First.City();
        id.region = "r1";
        city.name = "n1";
        city.flag = new byte[] {1};
        Schema<KeyValue<First.Id, First.City>> first =
                Schema.KeyValue(of(First.Id.class, kind), of(First.City.class, kind), encoding);
        try (Producer<KeyValue<First.Id, First.City>> producer = client.newProducer(first).topic(topic).create()) {
            producer.send(new KeyValue<>(id, city));
            producer.send(new KeyValue<>(id, null));
        }
        Second.Id next = new Second.Id();
        Second.City town = new Second.City();
        next.country = "c2";
        next.region = "r2";
        town.area = "a2";
        town.name = "n2";
        town.flag = new byte[] {2};
        Schema<KeyValue<Second.Id, Second.City>> second =
                Schema.KeyValue(of(Second.Id.class, kind), of(Second.City.class, kind), encoding);
        try (Producer<KeyValue<Second.Id, Second.City>> producer = client.newProducer(second).topic(topic).create()) {
            producer.send(new KeyValue<>(next, town));
        }
    }
}
