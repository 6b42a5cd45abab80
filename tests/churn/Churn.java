import java.util.Random;

/** The same in a JVM: `java -XX:G1PeriodicGCInterval=5000 Churn.java MEBIBYTES`. */
public final class Churn {
    private static final int SMALLEST = 64, DOUBLINGS = 10, MEAN = 9821, WAVE_SECONDS = 20;
    private static final Random RANDOM = new Random(1);

    private static byte[] block() {
        int size = SMALLEST << RANDOM.nextInt(DOUBLINGS);
        byte[] bytes = new byte[size + RANDOM.nextInt(size)];
        java.util.Arrays.fill(bytes, (byte) 1);
        return bytes;
    }

    public static void main(String[] words) throws InterruptedException {
        long mebibytes = words.length > 0 ? Long.parseLong(words[0]) : 512;
        byte[][] blocks = new byte[(int) ((mebibytes << 20) / MEAN)][];
        for (int at = 0; at < blocks.length; at++) blocks[at] = block();
        System.out.println("ready");
        long began = System.nanoTime(), wave = 0, sum = 0;
        while (true) {
            long before = System.nanoTime();
            for (int reads = 0; reads < 2000; reads++) {
                byte[] bytes = blocks[RANDOM.nextInt(blocks.length)];
                if (bytes != null) sum += bytes[RANDOM.nextInt(bytes.length)];
            }
            long now = (System.nanoTime() - began) / 1_000_000_000L / WAVE_SECONDS;
            if (now != wave) {
                wave = now;
                for (int at = 0; at < blocks.length; at++) {
                    if (wave % 2 == 0 && blocks[at] == null) blocks[at] = block();
                    else if (wave % 2 == 1 && RANDOM.nextBoolean()) blocks[at] = null;
                }
            }
            Thread.sleep((System.nanoTime() - before) * 4 / 1_000_000L + (sum == 42 ? 1 : 0));
        }
    }
}
