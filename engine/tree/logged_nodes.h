// SPDX-License-Identifier: Apache-2.0
//
// Which nodes have content in which segment of the log, of what was logged since the last dump. The
// index has the rest (L records), so that a seal of the oldest segment finds what lies in it. Part
// of a Tree: the commit lock guards it.
//
// A seal takes time, and dumps go on meanwhile. So:
//   Keep      what is noted is about to be sealed. Dumps put it into the index, with what comes
//             meanwhile, and keep all of it here.
//   Forget    that was sealed, up to a segment; the L records up to there are deleted, and some of
//             those may be of what came meanwhile: that is put again by the next dump.
//   Release   the seal came to nothing: the index has what was dumped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cairn::engine {

class LoggedNodes {
 public:
  using Entry = std::pair<uint64_t, uint64_t>;  // {segment, node}

  void Reserve(size_t more);
  void Note(uint64_t segment, uint64_t node) { entries_.emplace_back(segment, node); }
  void Note(std::span<const Entry> entries);

  // In log order; some twice. Since the last dump, or while they are kept, since Keep.
  std::span<const Entry> entries() const { return entries_; }

  void Keep();
  // What was here at Keep, up to `segment`, was sealed. The next dump must delete the L records up
  // to there, before it puts.
  void Forget(uint64_t segment);
  // The seal that Keep was for came to nothing, or Forget has told its end.
  void Release();

  // Sorted, each once: what a dump has to put.
  std::vector<Entry> Undumped() const;
  void NoteDumped();  // The index has all of it. Cannot fail.

 private:
  std::vector<Entry> entries_;
  bool keep_ = false;
  size_t kept_ = 0;    // So many there were at Keep...
  size_t dumped_ = 0;  // ...and so many the index has since then.
};

}  // namespace cairn::engine
