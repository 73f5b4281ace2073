// One transaction by tikv-client-java's TwoPhaseCommitter, as TiSpark and TiBigData use it: the primary first, then two
// tasks with a committer each, then the primary's commit, then the two tasks commit their keys.
// Reads commands: "connect PD", "load FILE ROWS" (length, key, length, value, …), "write". Answers each
// with "done …".

import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.tikv.common.BytePairWrapper;
import org.tikv.common.ByteWrapper;
import org.tikv.common.TiConfiguration;
import org.tikv.common.TiSession;
import org.tikv.common.util.ConcreteBackOffer;
import org.tikv.txn.TwoPhaseCommitter;

public class TwoPhaseWriter {
  private static final int TASKS = 2;
  private static final int PATIENCE_MS = 60_000;
  private static final long LOCK_TTL_MS = 60_000;

  public static void main(String[] arguments) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(TASKS);
    List<BytePairWrapper> rows = new ArrayList<>();
    TiSession session = null;
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] words = line.split(" ");
      String answer = "";
      switch (words[0]) {
        case "connect" -> {
          if (session != null) {
            session.close();
          }
          session = connect(words[1]);
        }
        case "load" -> rows = read(Path.of(words[1]), Integer.parseInt(words[2]));
        default -> answer = write(session, rows, threads);
      }
      System.out.println("done " + answer);
    }
    if (session != null) {
      session.close();
    }
    threads.shutdown();
  }

  private static TiSession connect(String pd) {
    TiConfiguration configuration = TiConfiguration.createDefault(pd);
    configuration.setKvMode("TXN");
    // The default of 200 ms is shorter than one commit request, which has 768 KiB of keys.
    configuration.setTimeout(PATIENCE_MS);
    return TiSession.create(configuration);
  }

  private static List<BytePairWrapper> read(Path file, int count) throws Exception {
    List<BytePairWrapper> rows = new ArrayList<>(count);
    try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(file), 1 << 20))) {
      for (int row = 0; row < count; row++) {
        byte[] key = in.readNBytes(in.readInt());
        rows.add(new BytePairWrapper(key, in.readNBytes(in.readInt())));
      }
    }
    return rows;
  }

  private static String write(TiSession session, List<BytePairWrapper> rows, ExecutorService threads) throws Exception {
    long began = System.nanoTime();
    long start = session.getTimestamp().getVersion();
    byte[] primary = rows.get(0).getKey();
    List<TwoPhaseCommitter> committers = new ArrayList<>();
    for (int task = 0; task < TASKS; task++) {
      committers.add(new TwoPhaseCommitter(session, start, LOCK_TTL_MS));
    }
    committers.get(0).prewritePrimaryKey(
        ConcreteBackOffer.newCustomBackOff(PATIENCE_MS), primary, rows.get(0).getValue());
    each(threads, task -> committers.get(task).prewriteSecondaryKeys(primary, part(rows, task).iterator(), PATIENCE_MS));
    long prewritten = System.nanoTime();
    long commit = session.getTimestamp().getVersion();
    committers.get(0).commitPrimaryKey(ConcreteBackOffer.newCustomBackOff(PATIENCE_MS), primary, commit);
    each(threads, task -> committers.get(task).commitSecondaryKeys(
        part(rows, task).stream().map(row -> new ByteWrapper(row.getKey())).iterator(), commit, PATIENCE_MS));
    for (TwoPhaseCommitter committer : committers) {
      committer.close();
    }
    return (prewritten - began) / 1e9 + " " + (System.nanoTime() - prewritten) / 1e9;
  }

  private static List<BytePairWrapper> part(List<BytePairWrapper> rows, int task) {
    int others = rows.size() - 1;
    return rows.subList(1 + others * task / TASKS, 1 + others * (task + 1) / TASKS);
  }

  private interface Step {
    void run(int task) throws Exception;
  }

  private static void each(ExecutorService threads, Step step) throws Exception {
    List<Callable<Void>> calls = new ArrayList<>();
    for (int task = 0; task < TASKS; task++) {
      int number = task;
      calls.add(() -> {
        step.run(number);
        return null;
      });
    }
    for (Future<Void> call : threads.invokeAll(calls)) {
      call.get();
    }
  }
}
