// SPDX-License-Identifier: Apache-2.0
//
// Pages of sparse sessions in pinned memory. A page on a node that several branches share exists
// once for all their sessions. A page is read when a session first needs it, and evicted when
// others need its memory: the clock spares pages from which something was loaded since it last
// passed.
//
//   read      into memory that no table of a session names yet
//   mapped    the tables of its users name it: kernels copy from it
//   leaving   no table names it any more; its memory is freed when work that the users have
//             enqueued has ended
//
// One thread at a time reads and evicts (the turn). It holds the turn until the pages that it has
// mapped were used, so that two sessions never take each other's pages in circles.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/executor.h"
#include "cairn/branch_types.h"
#include "cairn/status.h"
#include "engine/restore/branch_reads.h"
#include "engine/restore/gpu/pinned_arena.h"
#include "engine/sessions/sparse/sparse_layout.h"

namespace cairn::engine {

// The same key means the same bytes: a page is named by the node that its last token lies on, and
// the path above a node never changes while it is leased.
struct PageKey {
  uint64_t node = 0;
  uint64_t first = 0;   // Position.
  uint32_t tokens = 0;  // In the page; the last page of a session may hold fewer.
  uint32_t layer = 0, head = 0;
  uint32_t group = 0, planes = 0, piece_tokens = 0, page_tokens = 0;
  auto operator<=>(const PageKey&) const = default;
};

// A session, as its pages see it.
class PageUser {
 public:
  virtual ~PageUser() = default;
  // Puts the page into its table; null: none. Must not lock the user.
  virtual void Map(size_t index, std::byte* page) = 0;
  // Whether something was loaded from it since the last call.
  virtual bool TakeUsed(size_t index) = 0;
  // Waits until work that it has enqueued so far and that may read the page has ended.
  virtual Status AwaitReaders(size_t index) = 0;
  // Whether it has the content of the key on lease. By the holder of the turn.
  virtual bool Has(const PageKey& key) const = 0;
};

class PagePool {
 public:
  PagePool(std::unique_ptr<PinnedArena> memory, io::Scheduler* scheduler, BranchReads* reads)
      : memory_(std::move(memory)), reads_(*reads), turn_(*scheduler) {}
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  io::Turn* turn() { return &turn_; }

  struct Wanted {
    PageKey key;
    size_t index = 0;  // In the user's table.
  };
  struct Brought {
    uint64_t pages = 0;  // The first `pages` of `wanted` are mapped.
    uint64_t read = 0, read_bytes = 0;
  };
  // Maps those pages, as many as fit at a time, at least one; reads missing ones from the path of
  // `node`. kOutOfMemory: there is no room for a page. REQUIRES: the turn; no page of `wanted` is
  // mapped by this user.
  Result<Brought> Bring(PageUser* user, NodeId node, const SparseLayout& layout,
                        std::span<const Wanted> wanted, uint64_t timeout_ns);
  // Call before its first Bring; it stays a user until Leave or Abandon.
  void Enter(PageUser* user);
  // It does not use these pages, by index, any more. REQUIRES: the turn; it has no work enqueued.
  void Release(PageUser* user, std::span<const size_t> indexes);
  // It uses no page any more, and has no work enqueued.
  void Leave(PageUser* user);
  // It uses none any more, but its enqueued work may: its pages stay for good.
  void Abandon(PageUser* user);

  uint64_t used_bytes() const { return memory_->used_bytes(); }

 private:
  struct Mapping {
    PageUser* user;
    size_t index;
  };
  struct Page {
    PageKey key;
    std::byte* at = nullptr;
    bool is_abandoned = false;
    bool is_read = false;  // Else a read of it failed, or never began.
    uint64_t round = 0;    // The last Bring that mapped it, which must not evict it.
    std::vector<Mapping> mappings;
  };
  using Pages = std::list<Page>;

  Page* FindOrAdd(const PageKey& key, uint64_t bytes);
  std::byte* TakeMemory(uint64_t bytes);
  bool EvictOne();
  Status Read(NodeId node, const SparseLayout& layout, std::span<Page*> pages, uint64_t timeout_ns);
  void Remove(Pages::iterator page);
  void DropUncertain();

  const std::unique_ptr<PinnedArena> memory_;
  BranchReads& reads_;
  io::Turn turn_;
  // By the turn.
  Pages pages_;  // In the order of the clock.
  Pages::iterator hand_ = pages_.end();
  std::map<PageKey, Pages::iterator> by_key_;
  uint64_t round_ = 0;
  std::vector<PageUser*> users_;
};

}  // namespace cairn::engine
