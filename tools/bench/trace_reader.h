// SPDX-License-Identifier: Apache-2.0
//
// Reads request traces: which prompts came, and which of their prefixes had been seen before.
//
// Two public formats, documented in docs/traces.md: `*.json`, one agent session a file, and
// `*.jsonl`, one request a line. The path names such a file, a directory of them, or a tar archive;
// files and archives may be compressed with anything that libarchive unpacks (.gz, .zst, .xz, ...).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/status.h"

namespace cairn::bench {

// One call of a model. `ids[i]` names the whole prompt up to the end of its block i, so two prompts
// that share an id share everything before it. The last block may be partial; if the prompt is
// longer than its ids, the rest is unknown.
struct TraceRequest {
  uint64_t input_tokens = 0;
  uint64_t output_tokens = 0;
  std::vector<uint64_t> ids{};
  std::string where{};  // "trace.jsonl:17", for messages.
};

struct TraceSession {
  uint32_t block_tokens = 0;
  // Ids mean the same in all such sessions of the trace; else in this session alone.
  bool shares_ids = false;
  std::vector<TraceRequest> requests{};  // In the order in which they came.
};

// Session by session, so that a trace may be larger than memory. Not thread-safe.
class TraceReader {
 public:
  // `block_tokens` is that of .jsonl files, which do not say it. kNotFound or kIoError, naming the
  // path.
  static Result<std::unique_ptr<TraceReader>> Open(const std::string& path, uint32_t block_tokens);
  virtual ~TraceReader() = default;
  // Nothing at the end. kCorruption naming file, line and field where the content is not of its
  // format; kIoError where it cannot be read or unpacked.
  virtual Result<std::optional<TraceSession>> Next() = 0;
};

}  // namespace cairn::bench
