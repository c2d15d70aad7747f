// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/page_pool.h"

#include <algorithm>

#include "base/core/check.h"
#include "engine/config/constants.h"
#include "engine/sessions/sparse/head_rows.h"

namespace cairn::engine {

PagePool::~PagePool() {
  for (Page& page : pages_) {
    CAIRN_CHECK(page.mappings.empty());
    memory_->Return(page.at);
  }
}

void PagePool::Remove(Pages::iterator page) {
  if (hand_ == page) ++hand_;
  by_key_.erase(page->key);
  memory_->Return(page->at);
  pages_.erase(page);
}

// False: nothing may be evicted.
bool PagePool::EvictOne() {
  // One round clears the marks, a second one finds a page without.
  for (size_t steps = 2 * pages_.size(); steps > 0; --steps) {
    if (hand_ == pages_.end()) hand_ = pages_.begin();
    const auto page = hand_++;
    if (page->round == round_ || page->is_abandoned) continue;
    bool used = false;
    for (const Mapping& mapping : page->mappings) used |= mapping.user->TakeUsed(mapping.index);
    if (used) continue;
    for (const Mapping& mapping : page->mappings) mapping.user->Map(mapping.index, nullptr);
    // A kernel may have seen the page in a table.
    bool lost = false;
    for (const Mapping& mapping : page->mappings)
      lost |= !mapping.user->AwaitReaders(mapping.index).ok();
    page->mappings.clear();
    // After the loss of a device it is unknown what it still reads.
    page->is_abandoned = lost;
    if (lost) continue;
    Remove(page);
    return true;
  }
  return false;
}

std::byte* PagePool::TakeMemory(uint64_t bytes) {
  while (true) {
    std::byte* const at = memory_->Take(bytes);
    if (at != nullptr || !EvictOne()) return at;
  }
}

// Null: there is no room.
PagePool::Page* PagePool::FindOrAdd(const PageKey& key, uint64_t bytes) {
  if (const auto known = by_key_.find(key); known != by_key_.end()) return &*known->second;
  Pages fresh;
  fresh.push_back({.key = key, .mappings = {}});
  std::map<PageKey, Pages::iterator> entry;
  entry.emplace(key, fresh.begin());
  fresh.front().at = TakeMemory(bytes);
  if (fresh.front().at == nullptr) return nullptr;
  by_key_.merge(entry);  // This, and what follows, cannot fail.
  pages_.splice(pages_.end(), fresh);
  return &pages_.back();
}

Result<PagePool::Brought> PagePool::Bring(PageUser* user, NodeId node, const SparseLayout& layout,
                                          std::span<const Wanted> wanted, uint64_t timeout_ns) {
  ++round_;
  Brought brought;
  std::vector<Page*> mapped, to_read;
  mapped.reserve(wanted.size());
  to_read.reserve(wanted.size());
  for (const Wanted& one : wanted) {
    Page* const page = FindOrAdd(one.key, layout.page_bytes());
    if (page == nullptr) break;
    page->round = round_;
    page->mappings.reserve(page->mappings.size() + 1);
    mapped.push_back(page);
    if (!page->is_read) to_read.push_back(page);
  }
  if (mapped.empty()) {
    return Status(StatusCode::kOutOfMemory,
                  "sparse: the arena's " + std::to_string(memory_->bytes()) +
                      " bytes of pinned memory have no room for a page of " +
                      std::to_string(layout.page_bytes()));
  }
  CAIRN_RETURN_IF_ERROR(Read(node, layout, to_read, timeout_ns));
  for (Page* page : to_read) page->is_read = true;
  for (size_t i = 0; i < mapped.size(); ++i) {
    mapped[i]->mappings.push_back({user, wanted[i].index});
    user->Map(wanted[i].index, mapped[i]->at);
  }
  brought.pages = mapped.size();
  brought.read = to_read.size();
  brought.read_bytes = to_read.size() * layout.page_bytes();
  return brought;
}

// Each plane of a page is a restore of its own, of one head. The view says where that head's rows
// go; the places of other heads are not touched (RestoreItem::only).
Status PagePool::Read(NodeId node, const SparseLayout& layout, std::span<Page*> pages,
                      uint64_t timeout_ns) {
  std::vector<HeadRows> rows;
  for (const Page* const page : pages) {
    for (uint32_t index = 0; index < layout.plane_count; ++index) {
      rows.push_back({.layer = page->key.layer,
                      .plane = layout.planes[index],
                      .head = page->key.head,
                      .first = page->key.first,
                      .tokens = page->key.tokens,
                      .into = page->at + layout.page_offset(index)});
    }
  }
  return ReadHeadRows(&reads_, node, layout.group, layout.group_row_bytes, rows, timeout_ns);
}

void PagePool::Release(PageUser* user, std::span<const size_t> indexes) {
  for (Page& page : pages_) {
    std::erase_if(page.mappings, [&](const Mapping& mapping) {
      const bool is_released = mapping.user == user && std::find(indexes.begin(), indexes.end(),
                                                                 mapping.index) != indexes.end();
      if (is_released) user->Map(mapping.index, nullptr);
      return is_released;
    });
  }
}

void PagePool::Enter(PageUser* user) {
  const io::Turn::Holder turn(&turn_);
  users_.push_back(user);
}

void PagePool::Leave(PageUser* user) {
  const io::Turn::Holder turn(&turn_);
  std::erase(users_, user);
  for (Page& page : pages_) {
    std::erase_if(page.mappings, [user](const Mapping& mapping) { return mapping.user == user; });
  }
  DropUncertain();
}

void PagePool::Abandon(PageUser* user) {
  const io::Turn::Holder turn(&turn_);
  std::erase(users_, user);
  for (Page& page : pages_) {
    page.is_abandoned |= std::erase_if(page.mappings, [user](const Mapping& mapping) {
                           return mapping.user == user;
                         }) != 0;
  }
  DropUncertain();
}

// Content that no user has on lease may change under the same key.
void PagePool::DropUncertain() {
  for (auto page = pages_.begin(); page != pages_.end();) {
    const auto next = std::next(page);
    const bool is_certain = !page->mappings.empty() || page->is_abandoned ||
                            std::any_of(users_.begin(), users_.end(),
                                        [&](const PageUser* user) { return user->Has(page->key); });
    if (!is_certain) Remove(page);
    page = next;
  }
}

}  // namespace cairn::engine
