// SPDX-License-Identifier: Apache-2.0
//
// Writes what one append brings into a snapshot table of its own, straight from the caller's
// memory: page by page, layer by layer gathered, packed and handed to the device
// (engine/pages/page_writer.h), as sealing would lay it out, so that nothing reads it differently.
//
// The table is not read back. Sealing does that because it then gives up a durable copy that may
// have been acknowledged long ago; here nothing is acknowledged yet, and what is stored is under
// checksums like a record of the log, which is believed after its sync as well. Reading back would
// double the time that an append of this size waits for the disk, and unpacking in memory alone
// would cost a third more of the processor's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/io/executor.h"
#include "cairn/branch.h"
#include "engine/gpu/gpu_source.h"
#include "engine/memory_line.h"
#include "engine/tree/op.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

struct IngestSource {
  const ModelSpec* model = nullptr;
  const Delta* delta = nullptr;    // Checked against the model.
  uint64_t node = 0;               // Whose positions they will be.
  uint64_t length = 0;             // Tokens before the delta's.
  bool tokens = false;             // The ids go into the table as well.
  const GpuSource* gpu = nullptr;  // Where the KV lies, if not in host memory. It is ready.
};

struct IngestContext {
  sstable::TableContext tables;
  Allocator allocator = Allocator::Default();
  io::Scheduler* scheduler = nullptr;
  io::Executor* executor = nullptr;
  MemoryLine* memory = nullptr;  // Where it stands in line for what it needs.
  uint32_t helpers = 1;          // Of the executor, at most.
  // Asked before every frame, and while it waits for memory; not Ok ends the work.
  std::function<Status()> go_on;
};

struct Ingested {
  OpTable table;
  std::vector<SealedRange> ranges;  // Ascending by (lane, begin), one a page.
  uint64_t raw_bytes = 0;
};

// The table survives every crash when this returns. After any error there is none. Either way
// nobody touches the delta's memory any more. kNoSpace, kIoError, kOutOfMemory, whatever go_on
// says.
Result<Ingested> WriteIngestTable(const IngestContext& context, const IngestSource& source);

}  // namespace cairn::engine
