// SPDX-License-Identifier: Apache-2.0
//
// cairn-bench: what the store reaches of the limit that the machine sets, measured in the same run.

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "cairn/store.h"
#include "tools/bench/bench.h"
#include "tools/bench/machine.h"

namespace cairn::bench {
namespace {

struct Benchmark {
  const char* name;
  const char* summary;
  const char* detail;
  Run run;
};

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Numbers of bytes, tokens or steps, from 0 or 1 on. Without a range CLI11 reads -1 as 2^64 - 1.
constexpr uint64_t kNumberMax = uint64_t{1} << 40;

constexpr std::array kBenchmarks = {
    Benchmark{
        "append-durable", "2 MiB appends (16 tokens x 128 KiB) at kPower",
        "Segments in stock, memory touched before; beside the same bytes gathered and written\n"
        "raw. What a new store does: load burst.",
        RunAppendDurable},
    Benchmark{"append-large", "appends of 64 MiB (512 tokens x 128 KiB) at kPower",
              "In parts; beside the same bytes gathered and written raw.", RunAppendLarge},
    Benchmark{"append-token", "appends of one token at kPower",
              "--kv-bytes 131072, 8192 or 2048 a token; beside gathering and writing it raw.",
              RunAppendToken},
    Benchmark{
        "append-beside-sealing", "appends of one token at kPower while a backlog is sealed",
        "Beside the same with sealing paused. --share: what sealing may read and write, of the\n"
        "disk's write bandwidth as measured first; 0: no limit. --interval-us between appends.",
        RunAppendBesideSealing},
    Benchmark{
        "append-at-cap", "appends of one token at kPower to a store that is full and evicts",
        "Beside the same to a store that has room; conversations of 64 tokens, one after the\n"
        "other. --cap-bytes: Options::max_bytes. --interval-us between appends; 0: none.",
        RunAppendAtCap},
    Benchmark{"append-group", "small durable commits: one thread, eight threads, eight tickets",
              "One token of 2 KiB a commit. --sync-delay-us: what each sync takes at least.",
              RunAppendGroup},
    Benchmark{
        "submit", "what an asynchronous append of one 128 KiB token costs the caller",
        "Gathered from pieces of 256 B, of 2 KiB and from one piece, beside memcpy of the same.",
        RunSubmit},
    Benchmark{"restore-cold", "a 1 GiB session from its delta chain, nothing in memory",
              "Beside a ring of 512 KiB x 16 reads of one file of the same size.", RunRestoreCold},
    Benchmark{"restore-warm", "a 256 MiB session from the hot tail",
              "Beside one memcpy of as many bytes, and beside memcpy piece by piece.",
              RunRestoreWarm},
    Benchmark{"restore-small", "one of many sessions of 32 KiB, nothing in memory",
              "Out of the log and out of snapshot tables, beside one raw read of as many bytes.",
              RunRestoreSmall},
    Benchmark{"restore-set", "sealed sessions, restored round and round",
              "All in the page cache, 1.3 times as much as it holds, and next to no cache; beside\n"
              "memcpy piece by piece. --session-bytes: Options::max_memory_bytes instead of 1 GiB.",
              RunRestoreSet},
    Benchmark{"fork", "forking a branch of --tokens tokens at kMemory",
              "Time and log bytes, beside a fork of a short branch and one durable raw write.",
              RunFork},
    Benchmark{"drop", "dropping --branches children of one node, in order",
              "Time of the last tenth beside that of the first, and what is left to compact.",
              RunDrop},
    Benchmark{"rewind", "append four tokens, rewind by two, --steps times",
              "What speculative decoding does; nodes left in the tree, rewind beside append.",
              RunRewind},
    Benchmark{"open-many", "opening a store of --branches conversations",
              "Until the first is restored, and resident memory; beside a hundredth of them, and\n"
              "after a crash. --branch-kv-bytes 8192: with KV.",
              RunOpenMany},
    Benchmark{
        "find", "prompts of --prompt-tokens ids, looked for among --tokens stored ones",
        "In --branches branches: confirmed, unconfirmed, with nothing in memory, after a kill;\n"
        "beside a radix tree in memory. What an append costs with the index and without it.",
        RunFind},
    Benchmark{"blend", "the first token of a prompt whose documents stand elsewhere",
              "All of it by the own model, or by plans, with and without anything in memory.",
              RunBlend},
    Benchmark{
        "objects", "pages under keys: put, read and asked for in batches of 64",
        "Beside the same bytes appended to a branch, raw, and one file a key (renamed into place,\n"
        "synced and not). --branches: small objects for Exists, opening and the directory.",
        RunObjects},
    Benchmark{
        "codec", "what the lossless KV codec saves and costs, page by page",
        "KV of the own model, or --kv FILE --shape L,H,T,D (raw bf16, [L][H][T][D]); ratio of\n"
        "frames of 256 tokens; encode and decode on one core, beside memcpy of the same pages.",
        RunCodec},
    Benchmark{
        "trace", "requests of a recorded trace, replayed with generated KV",
        "--file *.json (agent sessions), *.jsonl (requests), a directory or tar of them, also\n"
        "compressed. Prefixes that FindPrefix finds are restored and checked, the rest appended.",
        RunTrace},
    Benchmark{
        "sweep", "whether costs grow faster than what they are for",
        "NAME: batch (its ops), names (of a namespace), chain (nodes on one path), namespaces,\n"
        "tables (on one path), or all; by powers of ten, in instructions and in bytes.",
        RunSweeps},
    Benchmark{
        "load", "a new store filled as a user's process does it, with every latency",
        "NAME: burst, threads, endless, tokens-128k, tokens-8k, tokens-128k-sealing, forks or\n"
        "sessions; beside the same bytes raw, run by run. Default options, no real-time priority.\n"
        "ingest: every size of append, beside raw, LMDB and files, and without a disk.",
        RunLoad},
    Benchmark{
        "peers", "the same work on Cairn, LevelDB, LMDB, RocksDB, SQLite, and a file a chunk",
        "Appends, runs longer than every pool and until all is settled, restores, branches, many\n"
        "small sessions; equal durability, equal cache budget, every setting in the report, CPU\n"
        "and page faults a GB. Engines not built in are named and skipped.",
        RunPeers},
    Benchmark{"gpu", "copies, kernels and restores on a GPU",
              "By the size of pieces; decode_scatter, gather_save and check_table; restores from "
              "disk and\n"
              "from memory, beside the bus, raw reads and the host. --device cuda:N, or simulated, "
              "which\n"
              "runs the same on the CPU: what it prints then says nothing of a card.",
              RunGpu},
    Benchmark{
        "sparse", "what the host pays for sparse attention",
        "Beside a GPU that does nothing: calls of a step by layer; making a shadow and making\n"
        "it longer; opening a session; reading pages. Of 8 layers of Llama 3 8B.",
        RunSparse},
    Benchmark{
        "shadow-step", "a decoder step of Llama 3 8B, sparse by a shadow, beside full attention",
        "120 Ki tokens, four layers measured; the default and the published spec. Attention\n"
        "itself is taken as one pass over its rows at the rate of the card's memory. --device as\n"
        "of gpu.",
        RunShadowStep},
};

void PrintList() {
  for (const Benchmark& benchmark : kBenchmarks) {
    std::printf("%-21s %s\n", benchmark.name, benchmark.summary);
    std::string detail = benchmark.detail;
    for (size_t at = 0; (at = detail.find('\n', at)) != std::string::npos; at += 23) {
      detail.replace(at, 1, "\n" + std::string(22, ' '));
    }
    std::printf("%22s%s\n", "", detail.c_str());
  }
}

void AddCommonOptions(CLI::App& app, Config& config) {
  app.add_option("--dir", config.dir, "Scratch data goes below this directory and is removed");
  app.add_flag("--json", config.json, "Print one JSON object instead of text");
  app.add_option("--segment-bytes", config.segment_bytes, "Options::segment_bytes")
      ->check(CLI::Range(uint64_t{0}, kNumberMax));
  app.add_option("--source-bytes", config.source_bytes, "KV memory of the benchmark")
      ->check(CLI::Range(uint64_t{16} << 20, kNumberMax));
}

// Options of benchmarks that compare arms, block by block.
void AddArmOptions(CLI::App& app, Config& config) {
  app.add_option("--seconds", config.seconds, "Time to measure, all arms together")
      ->check(CLI::Range(0.001, 86'400.0));
  app.add_option("--rounds", config.rounds, "Blocks of each arm")->check(CLI::Range(1, 1'000'000));
  app.add_option("--pool", config.pool_segments, "Segments in stock")->check(CLI::Range(2, 1024));
}

void AddTraceOptions(CLI::App& app, Config& config) {
  app.add_option("--file", config.trace_file, "The trace; docs/traces.md tells the formats")
      ->required();
  app.add_option("--kv-bytes-per-token", config.kv_bytes_per_token, "KV of a token")
      ->check(CLI::Range(uint64_t{1}, uint64_t{4} << 20));
  app.add_option("--block-tokens", config.block_tokens, "Tokens a hash id stands for, in .jsonl")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--durability", config.trace_durability, "Of appends: memory, process or power");
  app.add_option("--sessions", config.sessions_at_once, "Sessions that take turns")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--limit-requests", config.limit_requests, "End after so many; 0: no limit")
      ->check(CLI::Range(uint64_t{0}, kNumberMax));
  app.add_option("--limit-bytes", config.limit_bytes, "End after so much KV; 0: no limit")
      ->check(CLI::Range(uint64_t{0}, kNumberMax));
  app.add_option("--max-bytes", config.max_bytes, "Options::max_bytes; an append waits for room")
      ->check(CLI::Range(uint64_t{1} << 20, kNumberMax));
}

void AddSweepOptions(CLI::App& app, Config& config) {
  app.add_option("name", config.sweep_name, "batch, names, chain, namespaces, tables or all");
  app.add_option("--max", config.sweep_size_max, "The largest size")
      ->check(CLI::Range(uint64_t{100}, uint64_t{1'000'000}));
}

void AddLoadOptions(CLI::App& app, Config& config) {
  app.add_option("name", config.load_name, "The load; see cairn-bench list")->required();
  app.add_option("--bytes", config.load_bytes, "KV of a run; 0: the load's own")
      ->check(CLI::Range(uint64_t{0}, kNumberMax));
  app.add_option("--rounds", config.load_rounds, "Runs of each arm; 0: 3, of ingest 1")
      ->check(CLI::Range(0, 1'000));
  app.add_option("--layout", config.layout, "KV memory: nhd, hnd (paged) or token-major")
      ->default_val("token-major");
}

// Options of `load ingest`.
void AddIngestOptions(CLI::App& app, Config& config) {
  const std::string group = "Options of ingest";
  app.add_flag("--quick", config.quick, "Seconds for all: whether it works, not how fast it is")
      ->group(group);
  app.add_option("--seconds", config.ingest_seconds,
                 "The longest that a run appends; 0: 4, and 60 where it outlasts the log")
      ->group(group)
      ->check(CLI::Range(0.0, 86'400.0));
  app.add_option("--sizes", config.ingest_sizes,
                 "Bytes of an append, powers of two; else 128 KiB to 128 MiB")
      ->group(group)
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{128} << 10, uint64_t{1} << 30));
  app.add_option("--threads", config.ingest_threads, "That append to the disk; else 1,8")
      ->group(group)
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option("--kv", config.ingest_kv,
                 "model: KV of a real model; random: incompressible; else both")
      ->group(group)
      ->delimiter(',')
      ->check(CLI::IsMember({"model", "random"}));
  app.add_option("--arms", config.ingest_arms, "What runs; else all")
      ->group(group)
      ->delimiter(',')
      ->check(CLI::IsMember({"raw", "cairn", "lmdb", "files", "no-disk"}));
  app.footer(
      "ingest: appends of every size by 1 and 8 threads to new stores, until acknowledged and\n"
      "until Compact has returned, beside raw writes into used and into fresh blocks, LMDB, and a\n"
      "file an append; then the same without a disk, by 1 and 2 threads: GB/s a core. A run is\n"
      "1 GiB; of a model's KV in appends of 2 MiB by one thread four times log_bytes_max, where\n"
      "the disk has room.\n"
      "About ten minutes and 20 GB of disk.\n"
      "  cairn-bench load ingest --dir /mnt/ssd\n"
      "  cairn-bench load ingest --sizes 2097152 --threads 1 --kv model --arms raw,cairn\n"
      "  perf record -g cairn-bench load ingest --sizes 2097152 --threads 1 --kv model "
      "--arms no-disk");
}

void AddPeersOptions(CLI::App& app, Config& config) {
  app.add_option("--bytes", config.peer_bytes, "KV of the session that is restored; sizes follow")
      ->check(CLI::Range(uint64_t{4} << 20, kNumberMax));
  app.add_option("--seconds", config.peer_seconds, "Time to measure each work")
      ->check(CLI::Range(0.001, 86'400.0));
  app.add_option("--rounds", config.peer_rounds, "Blocks of each arm")
      ->check(CLI::Range(1, 1'000'000));
}

void AddOwnOptions(const std::string& name, CLI::App& app, Config& config) {
  if (name == "append-durable" || name == "append-large" || name == "append-token" ||
      name == "append-beside-sealing" || name == "append-at-cap" || name.starts_with("restore")) {
    app.add_option("--layout", config.layout, "KV memory: nhd, hnd (paged) or token-major");
  }
  if (name == "append-token") app.add_option("--kv-bytes", config.kv_bytes, "KV of one token");
  if (name == "append-beside-sealing") {
    app.get_option("--rounds")->default_val(5);
    app.add_option("--share", config.share_of_raw, "Of the raw write bandwidth, read and written")
        ->check(CLI::Range(0.0, 100.0));
    app.add_option("--backlog-bytes", config.session_bytes, "KV to seal; 0: what will do")
        ->check(CLI::Range(uint64_t{0}, kNumberMax));
  }
  if (name == "append-beside-sealing" || name == "append-at-cap") {
    app.add_option("--interval-us", config.interval_us, "Between appends")
        ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 30));
  }
  if (name == "append-at-cap") {
    app.get_option("--rounds")->default_val(8);
    app.add_option("--cap-bytes", config.cap_bytes, "Of the full store")
        ->check(CLI::Range(uint64_t{64} << 20, kNumberMax));
  }
  if (name == "append-group") {
    app.add_option("--sync-delay-us", config.sync_delay_us,
                   "What every sync of the store takes at least")
        ->check(CLI::Range(uint64_t{0}, kNumberMax));
  }
  if (name == "submit") app.add_option("--durability", config.durability, "memory or process");
  if (name.starts_with("restore")) {
    app.add_option("--session-bytes", config.session_bytes, "KV of a session; 0: what it says")
        ->check(CLI::Range(uint64_t{0}, kNumberMax));
  }
  if (name == "restore-cold") {
    app.add_flag("--sealed", config.sealed, "After Compact");
    app.add_option("--memory-bytes", config.memory_bytes,
                   "Options::max_memory_bytes; 0: the default")
        ->check(CLI::Range(uint64_t{0}, kNumberMax));
  }
  if (name == "fork") {
    app.add_option("--tokens", config.tokens, "Length of the branch")
        ->check(CLI::Range(uint64_t{1}, kNumberMax));
  }
  if (name == "codec") {
    CLI::Option* file = app.add_option("--kv", config.kv_file, "KV to pack: raw bf16");
    CLI::Option* shape = app.add_option("--shape", config.kv_shape, "Its shape: L,H,T,D");
    file->needs(shape);
    shape->needs(file);
    app.add_option("--tokens", config.kv_tokens, "Without --kv: tokens the own model reads");
  }
  if (name == "drop") {
    app.add_option("--branches", config.branches, "Children of the node")
        ->check(CLI::Range(uint64_t{10}, kNumberMax));
  }
  if (name == "open-many") {
    app.add_option("--branches", config.branches, "Conversations of four tokens")
        ->check(CLI::Range(uint64_t{1}, kNumberMax));
    app.add_option("--branch-kv-bytes", config.branch_kv_bytes, "KV of a token; 0: tokens alone");
  }
  if (name == "find") {
    app.get_option("--rounds")->default_val(6);
    app.add_option("--tokens", config.find_tokens, "Ids of all branches")
        ->check(CLI::Range(uint64_t{1000}, kNumberMax));
    app.add_option("--branches", config.branches, "Branches that hold them")
        ->check(CLI::Range(uint64_t{2}, uint64_t{100'000'000}));
    app.add_option("--prompt-tokens", config.prompt_tokens, "Ids of a prompt")
        ->check(CLI::Range(uint64_t{64}, uint64_t{1} << 24));
  }
  if (name == "trace" || name == "find") {
    app.add_option("--reuse-memory-bytes", config.reuse_memory_bytes, "Options of that name")
        ->check(CLI::Range(kMinReuseMemoryBytes, uint64_t{1} << 40));
  }
  if (name == "objects") {
    app.get_option("--rounds")->default_val(8);
    app.add_option("--object-bytes", config.object_bytes, "Of each; a multiple of 4096")
        ->check(CLI::Range(uint64_t{4096}, uint64_t{16} << 20));
    app.add_option("--branches", config.branches, "Small objects")
        ->default_val(100'000)
        ->check(CLI::Range(uint64_t{1000}, kNumberMax));
  }
  if (name == "trace") AddTraceOptions(app, config);
  if (name == "sweep") AddSweepOptions(app, config);
  if (name == "load") {
    AddLoadOptions(app, config);
    AddIngestOptions(app, config);
  }
  if (name == "peers") AddPeersOptions(app, config);
  if (name == "shadow-step") {
    app.get_option("--seconds")->default_val(30);
    app.get_option("--rounds")->default_val(6);
    app.add_option("--device", config.gpu_device, "cuda:N, as CUDA counts them, or simulated");
  }
  if (name == "gpu") {
    app.get_option("--seconds")->default_val(30);
    app.get_option("--rounds")->default_val(6);
    app.add_option("--device", config.gpu_device, "cuda:N, as CUDA counts them, or simulated");
    app.add_option("--session-bytes", config.session_bytes, "KV that is restored; 0: 1 GiB")
        ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 34));
  }
  if (name == "sparse") {
    app.add_option("--session-bytes", config.session_bytes, "KV of the branch; 0: 512 MiB")
        ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 36));
  }
  if (name == "rewind") {
    app.add_option("--steps", config.steps, "Appends and rewinds")
        ->check(CLI::Range(uint64_t{1}, kNumberMax));
  }
}

int RunBenchmark(const Benchmark& benchmark, const Config& config) {
  Report report;
  CatchInterrupts();
  Status status;
  {
    auto scratch = ScratchDirectory::Create(config.dir, benchmark.name);
    status = scratch.status();
    if (status.ok()) {
      const MachineInfo machine = DescribeMachine(scratch->path());
      report.Machine("cpu", machine.cpu);
      report.Machine("cores", machine.cores);
      report.Machine("kernel", machine.kernel);
      report.Machine("file_system", machine.file_system);
      report.Machine("device", machine.device);
      report.Machine("cairn", Version());
      status = benchmark.run(config, scratch->path(), &report);
    }
  }
  if (!status.ok()) {
    std::fprintf(stderr, "cairn-bench: %s: %s\n", benchmark.name, status.ToString().c_str());
    // Arguments that the store or the benchmark refused.
    return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
  }
  if (config.json) {
    std::printf("%s\n", report.ToJson(benchmark.name).dump(2).c_str());
  } else {
    report.Print(benchmark.name);
  }
  return 0;
}

// --help arrives as a parse error of exit code 0.
int ParseError(const CLI::App& app, const CLI::ParseError& error, const char* first_argument) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::string what = error.what();
  if (app.get_subcommands().empty()) {
    what = first_argument == nullptr || first_argument[0] == '-'
               ? "the name of a benchmark comes first"
               : "there is no benchmark \"" + std::string(first_argument) + "\"";
  }
  std::fprintf(stderr, "cairn-bench: %s\nTry: cairn-bench list, cairn-bench --help\n",
               what.c_str());
  return kExitUsage;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures Cairn beside the limit of the machine, in the same run.", "cairn-bench");
  app.require_subcommand(1);
  app.add_subcommand("list", "Explain the benchmarks")->callback(PrintList);
  // One each: they have defaults of their own.
  std::array<Config, kBenchmarks.size()> configs;
  int result = 0;
  for (size_t i = 0; i < kBenchmarks.size(); ++i) {
    const Benchmark& benchmark = kBenchmarks[i];
    Config& config = configs[i];
    CLI::App* command = app.add_subcommand(benchmark.name, benchmark.summary);
    AddCommonOptions(*command, config);
    const bool own_size = benchmark.run == RunTrace || benchmark.run == RunSweeps ||
                          benchmark.run == RunPeers || benchmark.run == RunLoad;
    if (!own_size) AddArmOptions(*command, config);
    AddOwnOptions(benchmark.name, *command, config);
    command->callback([&benchmark, &config, &result] { result = RunBenchmark(benchmark, config); });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ParseError(app, error, argv[1]);
  }
  return result;
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) { return cairn::bench::Main(argc, argv); }
