@0xc7d1a94a2f0e5b83;

# What the benchmarks call, in Cap'n Proto's terms: see proto/bench.proto.
interface Bench {
  echo @0 (data :Data) -> (data :Data);
  upload @1 (data :Data) -> ();
  download @2 (len :UInt64) -> (data :Data);
}
