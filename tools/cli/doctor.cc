// SPDX-License-Identifier: Apache-2.0
//
// doctor: whether this machine and this volume are good for a store, and what to do if not.
#include "tools/cli/doctor.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/core/check.h"
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
};

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "OK";
    case Verdict::kWarn: return "WARN";
    case Verdict::kFail: return "FAIL";
  }
  return "unknown";
}

Result<int> RunDoctor(const DoctorArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(io::World world, io::MakeRealWorld(io::IoBackend::kThreads));
  CAIRN_ASSIGN_OR_RETURN(const io::FileInfo info, world.files->Info(arguments.directory));
  if (!info.is_directory) {
    return Status(StatusCode::kInvalidArgument, arguments.directory + " is no directory");
  }
  Findings findings;
  CheckProcessor(&findings);
  CheckUring(&findings);
  CheckLimits(&findings);
  CheckHugePages(&findings);
  CheckGpu(&findings);
  CheckVolume(world, arguments.directory, &findings);
  std::optional<SyncTimes> measured;
  if (arguments.probe) measured = CheckSync(world, arguments.directory, &findings);
  CheckStore(world, arguments.directory, measured, &findings);

  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  if (json) {
    Json list = Json::array();
    for (const Finding& finding : findings) {
      list.push_back({{"verdict", VerdictName(finding.verdict)},
                      {"what", finding.what},
                      {"detail", finding.detail}});
    }
    PrintJson(
        {{"directory", arguments.directory}, {"verdict", VerdictName(worst)}, {"findings", list}});
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
      app, session, "doctor",
      "Check whether machine and volume are good for a store\n\n"
      "One line a finding: OK, WARN (works, but could be better or deserves a look) or FAIL (data\n"
      "would not be safe, or nothing would work); the exit code is 1 if any is FAIL. In the\n"
      "directory of a store its choices are checked, too.",
      "  cairn doctor                  # the working directory\n"
      "  cairn doctor /var/lib/state\n"
      "  cairn doctor --no-probe --json",
      doctor, RunDoctor);
  command->add_option("DIR", doctor->directory, "Where a store is, or would be")
      ->capture_default_str();
  command->add_flag("--probe,!--no-probe", doctor->probe,
                    "Measure durable writes with a small file in DIR (the default)");
}

}  // namespace cairn::cli
