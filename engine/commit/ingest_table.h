// SPDX-License-Identifier: Apache-2.0
//
// Writes the content of one append into a snapshot table of its own, straight from the caller's
// memory: page by page and layer by layer it is gathered, packed and written
// (engine/commit/page_writer.h). The layout is that of sealing, so that every reader treats it
// alike.
//
// The table is not read back. Sealing does that because it then gives up a durable copy that may
// have been acknowledged long ago. Here nothing is acknowledged yet, and the stored bytes are under
// checksums like a record of the log, which is trusted after its sync as well. Reading back would
// double the time that an append of this size waits for the disk, and unpacking in memory alone
// would cost a third more processor time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/io/executor.h"
#include "cairn/branch_types.h"
#include "engine/config/memory_line.h"
#include "engine/device/gpu_source.h"
#include "engine/tree/memory/op.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

struct IngestSource {
  const ModelSpec* model = nullptr;
  const Delta* delta = nullptr;    // Checked against the model.
  uint64_t node = 0;               // The node that the positions will belong to.
  uint64_t length = 0;             // Tokens before the delta's.
  bool tokens = false;             // The ids go into the table, too.
  const GpuSource* gpu = nullptr;  // Where the KV lies, if not in host memory. Ready to be read.
};

struct IngestContext {
  sstable::TableContext tables;
  Allocator allocator = Allocator::Default();
  io::Scheduler* scheduler = nullptr;
  io::Executor* executor = nullptr;
  MemoryLine* memory = nullptr;  // The line in which it waits for memory.
  uint32_t helpers = 1;          // The most threads of the executor that it uses.
  // Asked before every frame, and while it waits for memory; not Ok ends the work.
  std::function<Status()> go_on;
};

struct Ingested {
  TableRef table;
  std::vector<SealedRange> ranges;  // Ascending by (lane, begin), one per page.
  uint64_t raw_bytes = 0;
};

// How much a table of it would take, by a sample: frames of pages that lie far apart. What cannot
// be sampled counts as content that does not pack.
uint64_t PackedBytesAbout(const IngestSource& source, Allocator allocator);

// When this returns the table survives every crash. After any error there is no table. In both
// cases nothing touches the delta's memory any more. kNoSpace, kIoError, kOutOfMemory, or the error
// of go_on.
Result<Ingested> WriteIngestTable(const IngestContext& context, const IngestSource& source);

}  // namespace cairn::engine
