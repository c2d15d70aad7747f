// SPDX-License-Identifier: Apache-2.0
//
// cairn-micro: the small parts of the engine, each alone, by Google Benchmark. cairn-bench measures
// their cost together, on a disk.
//
//   cairn-micro --benchmark_filter=tree      some of them
//   cairn-micro --benchmark_format=json      as docs/bench/micro.json was made (docs/bench.md)
#include "base/codec/hash.h"
#include "base/codec/kv_frame.h"
#include "base/codec/rotary_table.h"
#include "cairn/store.h"
#include "tools/bench/machine.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

// Tells whether a benchmark ended with an error: the library itself exits with 0 then.
template <typename Reporter>
class Watching final : public Reporter {
 public:
  using Reporter::Reporter;
  void ReportRuns(const std::vector<::benchmark::BenchmarkReporter::Run>& runs) override {
    for (const auto& run : runs) failed_ |= run.error_occurred;
    Reporter::ReportRuns(runs);
  }
  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

template <typename Reporter>
int RunAll(Watching<Reporter> reporter) {
  const size_t count = ::benchmark::RunSpecifiedBenchmarks(&reporter);
  return count == 0 || reporter.failed() ? 1 : 0;
}

int Main(int argc, char** argv) {
  bool json = false;
  for (int i = 1; i < argc; ++i) json |= std::string(argv[i]) == "--benchmark_format=json";
  ::benchmark::Initialize(&argc, argv);
  if (::benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const MachineInfo machine = DescribeMachine(".");
  ::benchmark::AddCustomContext("cpu", machine.cpu);
  ::benchmark::AddCustomContext("kernel", machine.kernel);
  ::benchmark::AddCustomContext("cairn", Version());
  ::benchmark::AddCustomContext("hash_path", HashPathName());
  ::benchmark::AddCustomContext("codec_path", CodecPathName(BestCodecPath()));
  ::benchmark::AddCustomContext("rotary_path", RotaryPathName(BestRotaryPath()));
  RegisterChunks();
  RegisterCodec();
  RegisterCopies();
  RegisterHashes();
  RegisterPageCache();
  RegisterRotary();
  RegisterTree();
  RegisterLog();
  RegisterLookups();
  RegisterStore();
  using ::benchmark::ConsoleReporter;
  using ::benchmark::JSONReporter;
  if (json) return RunAll(Watching<JSONReporter>());
  return RunAll(Watching<ConsoleReporter>(ConsoleReporter::OO_Tabular));
}

}  // namespace
}  // namespace cairn::bench::micro

int main(int argc, char** argv) { return cairn::bench::micro::Main(argc, argv); }
