// SPDX-License-Identifier: Apache-2.0
//
// doctor: whether this machine and this volume are good for a store, and what to do if not.
#include "tools/cli/doctor.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/core/check.h"
#include "base/io/file_util.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace cairn::cli {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

namespace {

struct DoctorArguments {
  std::string directory = ".";
  bool probe = true;
  std::string gpu = "cuda:0";
};

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "OK";
    case Verdict::kWarn: return "WARN";
    case Verdict::kFail: return "FAIL";
  }
  return "unknown";
}

// `directory`, or the nearest existing directory above it.
Result<std::string> NearestDirectory(io::World& world, const std::string& directory) {
  std::filesystem::path path = directory;
  for (;;) {
    const auto info = world.files->Info(path.string());
    if (info.ok() && info->is_directory) return path.string();
    if (info.ok()) {
      return Status(StatusCode::kInvalidArgument, path.string() + " is no directory");
    }
    const bool last = path == "." || path == path.root_path();
    if (last || info.status().code() != StatusCode::kNotFound) return info.status();
    // "a/" is "a"; what is above a relative path is the working directory.
    if (!path.has_filename()) path = path.parent_path();
    path = path.parent_path();
    if (path.empty()) path = ".";
  }
}

// Obstacles to making a store there; `nearest` is the closest existing directory.
Finding DirectoryFinding(const std::string& directory, const std::string& nearest) {
  std::filesystem::path path = directory;
  if (!path.has_filename()) path = path.parent_path();
  const std::filesystem::path above = path.has_parent_path() ? path.parent_path() : ".";
  Finding finding{
      Verdict::kOk, "directory",
      directory + " is not there yet; checked is " + nearest + ", the nearest directory above it"};
  if (above != nearest) {
    finding.verdict = Verdict::kWarn;
    finding.detail += "; cairn create makes one directory: mkdir -p " + ShellWord(above.string()) +
                      " comes first";
  }
  return finding;
}

Result<int> RunDoctor(const DoctorArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(io::World world, io::MakeRealWorld(io::IoBackend::kThreads));
  CAIRN_ASSIGN_OR_RETURN(const std::string checked, NearestDirectory(world, arguments.directory));
  // What is in it may come from elsewhere, and the probes make files there.
  CAIRN_RETURN_IF_ERROR(io::HoldDirectory(&world, checked));
  Findings findings;
  if (checked != arguments.directory) {
    findings.push_back(DirectoryFinding(arguments.directory, checked));
  }
  CheckProcessor(&findings);
  CheckUring(&findings);
  CheckLimits(&findings);
  CheckHugePages(&findings);
  CheckGpu(&findings);
  CheckVolume(world, checked, &findings);
  std::optional<SyncsMeasured> measured;
  if (arguments.probe) measured = CheckSync(world, checked, &findings);
  if (arguments.probe) MeasureGpu(world, checked, arguments.gpu, &findings);
  if (checked == arguments.directory) CheckStore(world, checked, measured, &findings);

  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  if (json) {
    Json list = Json::array();
    for (const Finding& finding : findings) {
      list.push_back({{"verdict", VerdictName(finding.verdict)},
                      {"what", finding.what},
                      {"detail", finding.detail}});
    }
    PrintJson({{"directory", arguments.directory},
               {"checked", checked},
               {"verdict", VerdictName(worst)},
               {"findings", list}});
  } else {
    for (const Finding& finding : findings) {
      std::printf("%-4s  %-12s %s\n", VerdictName(finding.verdict), finding.what.c_str(),
                  Printable(finding.detail).c_str());
    }
  }
  return worst == Verdict::kFail ? kExitError : kExitOk;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Session& session) {
  const auto doctor = std::make_shared<DoctorArguments>();
  CLI::App* command = AddCommand(
      app, session, "doctor", Access::kLooks,
      "Check whether machine and volume are good for a store\n\n"
      "One line a finding: OK, WARN (works, but could be better or deserves a look) or FAIL (data\n"
      "would not be safe, or nothing would work); the exit code is 1 if any is FAIL. In the\n"
      "directory of a store its choices are checked, too. Where DIR is not there yet, the nearest\n"
      "directory above it is checked.",
      "  cairn doctor                  # the working directory\n"
      "  cairn doctor /var/lib/state   # also before it is made\n"
      "  cairn doctor --no-probe --json",
      doctor, RunDoctor);
  command->add_option("DIR", doctor->directory, "Where a store is, or would be")
      ->check([](const std::string& text) -> std::string {
        return text.empty() ? "the path is empty" : "";
      })
      ->capture_default_str();
  command->add_flag("--probe,!--no-probe", doctor->probe,
                    "Measure durable writes with a small file in DIR, and with one of 32 MiB the "
                    "way to a GPU (the default)");
  command->add_option("--gpu", doctor->gpu, "The card to measure: cuda:N, or simulated, for tests")
      ->capture_default_str();
}

}  // namespace cairn::cli
