// SPDX-License-Identifier: Apache-2.0
//
// peers: the same work on Cairn and on what a user would take instead, in one run, by alternating
// blocks, at equal durability and with equal cache budgets. Every setting is in the report.

#include <cstdio>

#include "base/core/check.h"
#include "tools/bench/peers/contest.h"

namespace cairn::bench {

Status RunPeers(const Config& config, const std::string& scratch, Report* report) {
  nlohmann::json skipped = nlohmann::json::object();
  for (const PeerKind& kind : PeerKinds()) {
    if (kind.open != nullptr) continue;
    skipped[kind.name] = kind.why_absent;
    std::fprintf(stderr, "cairn-bench: peers: %s is skipped: %s\n", kind.name.c_str(),
                 kind.why_absent.c_str());
  }
  report->Machine("skipped", skipped);
  report->Machine("bytes", config.peer_bytes);
  CAIRN_RETURN_IF_ERROR(RunLargeAppends(config, scratch, report).WithContext("large appends"));
  CAIRN_RETURN_IF_ERROR(RunLongAppends(config, scratch, report).WithContext("long appends"));
  CAIRN_RETURN_IF_ERROR(RunSmallAppends(config, scratch, report).WithContext("small appends"));
  CAIRN_RETURN_IF_ERROR(RunLargeSessions(config, scratch, report).WithContext("sessions"));
  return RunSmallSessions(config, scratch, report).WithContext("small sessions");
}

}  // namespace cairn::bench
