// SPDX-License-Identifier: Apache-2.0
//
// The reads of a restore: records of the log and frames of snapshot tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/align.h"
#include "base/io/world.h"
#include "cairn/restore.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/fragment_layout.h"
#include "engine/tree/memory/tree.h"
#include "sstable/snapshot_table.h"

namespace cairn::engine {

// The place of a record in messages: "log/<file name>: offset <n>".
std::string PlaceText(const wal::Location& at);

// The place of a source's position in the caller's view.
inline uint64_t TargetOf(uint64_t position, int64_t shift) {
  return position + static_cast<uint64_t>(shift);
}

// A range of a path, and where it goes: position p to p + shift of the view.
struct RestoreSource {
  BranchId branch{};  // Its path; or, if `node` is not 0, ...
  NodeId node{};      // ... the one that ends with the last position of this node.
  // Positions of the source. UINT64_MAX: its length, of the only source of a restore.
  uint64_t begin = 0, end = UINT64_MAX;
  int64_t shift = 0;
  // In the view other tokens stand before it than on the path: its KV counts as approximate there.
  bool foreign = false;
  // Of several. All positions are wanted; else what groups need where it ends, or at this position
  // if it is not 0: the path goes on there. UINT64_MAX, of one: all that exists, nothing is needed.
  bool whole = false;
  uint64_t needed_end = 0;
};

struct RecordPiece {
  uint32_t lane = 0;
  uint32_t op_index = 0;
  uint64_t extent_begin = 0;    // As the record says.
  uint64_t begin = 0, end = 0;  // Positions wanted, of the source.
  int64_t shift = 0;            // RestoreSource::shift
  bool exact = true;            // Extent::exact.
  uint32_t view = 0;            // For KV: index in KvView::groups.
  bool foreign = false;         // RestoreSource::foreign
  bool counts_as_exact() const { return exact && !foreign; }
  uint64_t Target(uint64_t position) const { return TargetOf(position, shift); }
};

class RecordOutline;

struct RecordJob {
  wal::Location location;
  // What is read of the record: from its start, all of it unless only tokens are wanted; or, where
  // its outline is known, the strips that are wanted.
  uint32_t read_bytes = 0;
  std::vector<RecordPiece> pieces;
  std::optional<uint32_t> state_strip{};  // Wanted, instead of pieces.
  uint32_t read_offset = 0;               // From the record's start. Not 0 only with...
  std::shared_ptr<const RecordOutline> outline{};

  uint32_t read_end() const { return read_offset + read_bytes; }
};

// Positions wanted of one fragment.
struct SealedPiece {
  uint64_t table = 0;
  uint64_t node = 0;  // As the fragment says.
  uint32_t lane = 0;
  uint64_t begin = 0, end = 0;
  int64_t shift = 0;  // As of a RecordPiece.
  bool exact = true;  // Extent::exact; the fragment says the same.
  // As of a RecordPiece.
  uint32_t view = 0;
  bool foreign = false;
  bool counts_as_exact() const { return exact && !foreign; }
  uint64_t Target(uint64_t position) const { return TargetOf(position, shift); }
};

struct RestorePlan {
  std::shared_ptr<const ModelSpec> model;
  uint64_t model_id = 0;
  uint64_t begin = 0, end = 0;      // Tokens, in positions of the view.
  uint64_t length = 0;              // The branch's; 0 with several sources.
  std::string ns{};                 // Its namespace; with several sources the first one's.
  std::vector<uint64_t> kv_ends;    // One a GroupView, in positions of the view.
  std::vector<RecordJob> jobs;      // Sorted by location.
  std::vector<SealedPiece> sealed;  // In the order of the path.
  bool turns_keys = true;           // RestoreItem::turns_keys
};

// Adds the reads for positions [begin, end) of an extent; `view` and `shift` as in the pieces.
void AddExtent(uint64_t node, uint32_t lane, const Extent& extent, uint64_t begin, uint64_t end,
               RestorePlan* plan, uint32_t view = 0, int64_t shift = 0);

// A hash that changes when the content lies elsewhere; never 0.
uint64_t HashOfPlace(const Place& place);
uint64_t HashOfPlaces(const RestorePlan& plan);

// Under the commit lock: what tables hold of [begin, end), in all lanes, as far as a restore up to
// `end` needs it.
RestorePlan PlanPrefetch(const Tree& tree, const Head& head, uint64_t begin, uint64_t end);
// The range of a call, for a branch with this many tokens. `end` UINT64_MAX: up to its end. A range
// that begins behind its end, or ends beyond the branch, is kInvalidArgument; `what` begins the
// message.
struct Range {
  uint64_t begin = 0, end = 0;
};
Result<Range> RangeOf(uint64_t begin, uint64_t end, uint64_t length, const char* what);

// The end of a node, as a branch that ends there.
Head HeadOfNode(const Node& node);

// Under the commit lock: what the path of `source` gives to a restore. kInvalidArgument for ranges
// beyond the branch or a view that is too small, kEvicted when needed KV was evicted.
//
// `several_end` 0: it is the only source, and `request` says how far its KV must reach. Else it is
// one of several: KV of all its positions must have been given, and groups need what they need
// where it ends (RestoreSource::whole). A view with a group of states is kInvalidArgument then: the
// state of one source says nothing of the others.
Result<RestorePlan> PlanRestore(const Tree& tree, const Head& head, const RestoreSource& source,
                                const RestoreRequest& request, uint64_t several_end = 0);
// Puts `more` behind the sources that `plan` has. kModelMismatch: it is of another model.
Status AddPlan(RestorePlan more, RestorePlan* plan);
// Call behind the last source, without the lock: one read of each record serves all sources.
void MergePlans(RestorePlan* plan);

// A sealed piece, the fragment that holds it, and its wanted frames.
struct OpenPiece {
  SealedPiece piece;
  std::shared_ptr<sstable::SnapshotTable> table;
  sstable::FragmentEntry fragment;
  FragmentLayout layout;
  uint32_t first_slice = 0, end_slice = 0;
  uint32_t first_page = 0, end_page = 0;
  std::vector<sstable::FrameEntry> entries{};  // The whole fragment's; empty until it is read.
  size_t missing = 0;                          // Wanted frames that must be read...
  std::vector<uint8_t> cached{};               // ...and who had the others; empty: none.
  static constexpr uint8_t kOfPageCache = 1, kPinned = 2;

  bool is_state() const { return piece.lane == kSamplerLane || piece.lane == kMetadataLane; }
  // Small enough to be read, and kept in memory, as a whole.
  bool small() const { return fragment.bytes() <= kSmallFragmentBytes; }
  // Size when unpacked.
  uint64_t RawBytes(uint32_t slice, uint32_t page) const {
    const uint32_t rows = fragment.rows(page);
    return piece.lane == kTokenLane ? rows * sizeof(uint32_t)
                                    : layout.Shape(slice, rows).raw_bytes();
  }
  size_t frames() const { return size_t{end_slice - first_slice} * (end_page - first_page); }
  const sstable::FrameEntry& entry(uint32_t slice, uint32_t page) const {
    return entries[size_t{slice} * fragment.pages + page];
  }
  size_t IndexOfWanted(uint32_t slice, uint32_t page) const {
    return size_t{slice - first_slice} * (end_page - first_page) + (page - first_page);
  }
  bool IsCached(uint32_t slice, uint32_t page) const {
    return !cached.empty() && cached[IndexOfWanted(slice, page)] != 0;
  }
  // The first wanted position of a page, in the view.
  uint64_t FirstPosition(uint32_t page) const {
    return piece.Target(
        std::max(piece.begin, fragment.begin + uint64_t{page} * fragment.page_rows));
  }
};

// One frame of an OpenPiece.
struct FrameJob {
  size_t piece = 0;  // Index of the OpenPiece.
  uint32_t slice = 0, page = 0;
};

// Finds the fragment; for KV the layers [layer_begin, layer_end) are wanted. kCorruption when the
// table does not hold what the tree says.
Result<OpenPiece> FindFragment(const ModelSpec& model, const SealedPiece& piece,
                               std::shared_ptr<sstable::SnapshotTable> table,
                               uint32_t layer_begin = 0, uint32_t layer_end = UINT32_MAX);

// One stretch of a file to read.
struct ReadJob {
  enum class Kind : uint8_t {
    kRecord,
    kFragment,  // A small one: its frames with their entries.
    kEntries,   // Those of a large fragment; its frames follow.
    kFrame,
  };
  uint64_t file = 0;  // Number of a log segment, or of a snapshot table.
  Kind kind = Kind::kRecord;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t first_position = 0;  // Damage costs this position of the view and all behind it.
  size_t index = 0;             // For the function that works on it.
  size_t item = 0;              // The item that it is for.

  bool in_table() const { return kind != Kind::kRecord; }
  bool SameFile(const ReadJob& other) const {
    return file == other.file && in_table() == other.in_table();
  }
};

// Neighbouring jobs that are read together.
struct ReadWindow {
  uint64_t offset = 0, bytes = 0;  // Aligned to io::kBlockBytes.
  size_t first_job = 0, job_count = 0;
};
std::vector<ReadWindow> PlanWindows(std::span<const ReadJob> jobs);

}  // namespace cairn::engine
