// SPDX-License-Identifier: Apache-2.0
//
// The benchmarks of `cairn-bench gpu`, part by part, and `cairn-bench shadow-step`, as a program
// for a machine that has nothing but libc and the driver. One JSON object a line: the device, then
// each part.
//
//   bench DEVICE             prints the device and ends
//   bench DEVICE SECONDS DIR
//
// Exit status: 0; 1 if a part failed; 2 for arguments that cannot be; 77 where there is no such
// device.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tools/bench/gpu_bench.h"
#include "tools/bench/machine.h"

namespace cairn::bench {
namespace {

constexpr int kExitNoDevice = 77;
constexpr uint32_t kRounds = 6;

using nlohmann::json;

struct Part {
  const char* name;
  Status (*run)(GpuBench& bench, const std::string& scratch);
};
constexpr std::array kParts = {
    Part{"copies", [](GpuBench& bench, const std::string&) { return BenchGpuCopies(bench); }},
    Part{"kernels", [](GpuBench& bench, const std::string&) { return BenchGpuKernels(bench); }},
    Part{"restores", BenchGpuRestores}, Part{"step", BenchShadowStep}};

void Print(const std::string& stage, const Report& report, const Status& status) {
  json line = report.ToJson("gpu");
  line.erase("bench");
  line["stage"] = stage;
  line["gpu"] = line["machine"].value("gpu", "");
  line["status"] = status.ok() ? "passed" : "failed";
  if (!status.ok()) line["error"] = status.ToString();
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

Status RunPart(const Part& part, const Config& config, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const auto scratch, ScratchDirectory::Create(config.dir, part.name));
  CAIRN_ASSIGN_OR_RETURN(const auto bench, GpuBench::Open(config, report));
  return part.run(*bench, scratch.path());
}

int Main(int argc, char** argv) {
  if (argc != 2 && argc != 4) return 2;
  Config config;
  config.gpu_device = argv[1];
  config.rounds = kRounds;
  Report report;
  const auto device = GpuBench::Open(config, &report);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return device.status().code() == StatusCode::kInvalidArgument ? 2 : kExitNoDevice;
  }
  if (argc == 2) {
    Print("device", report, Status::Ok());
    return 0;
  }
  config.seconds = std::atof(argv[2]);
  config.dir = argv[3];
  CatchInterrupts();
  int result = 0;
  for (const Part& part : kParts) {
    Report figures;
    const Status status = RunPart(part, config, &figures);
    Print(part.name, figures, status);
    if (!status.ok()) result = 1;
  }
  return result;
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) { return cairn::bench::Main(argc, argv); }
