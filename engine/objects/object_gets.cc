// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_gets.h"

#include <algorithm>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/objects/constants.h"
#include "engine/objects/object_names.h"
#include "engine/objects/object_rows.h"

namespace cairn::engine {

namespace {

Status NoObject() { return Status(StatusCode::kNotFound, "no object has this key"); }

// A branch that was dropped, or evicted, between look-up and read.
bool IsGone(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kEvicted;
}

Status Damaged() {
  return Status(StatusCode::kCorruption, "the token ids of the object are none of a put");
}

}  // namespace

// A get that is under way.
struct ObjectGets::Get {
  size_t index = 0;
  const ObjectGet* object = nullptr;
  const TicketState* ticket = nullptr;
  FoundObject found{};
  std::unique_ptr<ObjectRows> rows{};
  GetResult result{};
  bool again = true;  // Its result is not known yet.
};

std::vector<FoundObject> ObjectGets::Find(const std::string& space,
                                          std::span<const std::string_view> keys) const {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const std::string_view key : keys) names.push_back(NameOfKey(key));
  std::vector<FoundObject> found(keys.size());
  FindNamed(space, names, found);
  return found;
}

void ObjectGets::FindNamed(const std::string& space, std::span<const std::string> names,
                           std::span<FoundObject> found) const {
  TreeNeeds needs;
  for (const std::string& name : names) needs.names.emplace_back(space, name);
  FoundObject last;  // Mostly all are of one class.
  Committer::Lock lock(deps_.mutex());
  const Status loaded = deps_.access->Load(needs, &lock);
  if (!loaded.ok() && names.size() == 1) {
    found[0].status = loaded;
    return;
  }
  if (!loaded.ok()) {  // Looking up each one separately shows which failed.
    lock.unlock();
    for (size_t i = 0; i < names.size(); ++i) {
      FindNamed(space, names.subspan(i, 1), found.subspan(i, 1));
    }
    return;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const Head* const head = deps_.tree().FindHead(space, names[i]);
    if (head == nullptr || !IsWhole(*head)) continue;
    if (head->model != last.model) {
      const auto object_class = ClassIn(deps_.tree(), *head);
      if (!object_class.ok()) {
        found[i].status = object_class.status();
        continue;
      }
      last = {.model = head->model, .page_bytes = object_class->page_bytes};
    }
    found[i] = {head->id, head->model, head->lengths[kTokenLane], last.page_bytes, {}};
  }
}

Result<uint64_t> ObjectGets::BytesOf(const FoundObject& object, uint64_t deadline_ns) const {
  TokenId last = 0;
  RestoreItem item{.branch = BranchId{object.branch}};
  item.request.begin = object.rows - 1;
  item.request.end = object.rows;
  item.request.tokens = {&last, 1};
  CAIRN_RETURN_IF_ERROR(reads_.RestoreMany({&item, 1}, TimeLeft(deps_, deadline_ns)));
  if (IsGone(item.status)) return NoObject();
  CAIRN_RETURN_IF_ERROR(item.status);
  if (last > object.page_bytes || (last == 0 && object.rows > 1)) return Damaged();
  return (object.rows - 1) * object.page_bytes + last;
}

// Decides for each where its bytes go, or how it ends; then it is not looked up again.
void ObjectGets::Look(const From& from, std::span<Get* const> gets) const {
  std::vector<std::string_view> keys;
  for (const Get* get : gets) keys.push_back(get->object->key);
  const std::vector<FoundObject> found = Find(from.space, keys);
  for (size_t i = 0; i < gets.size(); ++i) {
    Get& get = *gets[i];
    get.found = found[i];
    const std::span<std::byte> into = get.object->into;
    const uint32_t page_bytes = found[i].page_bytes;
    const auto wanted = static_cast<uint64_t>(from.object_class);
    if (found[i].branch == 0) {
      get.result.status = found[i].status.ok() ? NoObject() : found[i].status;
      get.again = false;
    } else if (wanted != 0 && wanted != found[i].model) {
      get.result.status = Status(StatusCode::kModelMismatch,
                                 "the object is of class " + std::to_string(found[i].model) +
                                     ", asked for was " + std::to_string(wanted));
      get.again = false;
    } else if (ObjectRows::RowsOf(into.size(), page_bytes) < found[i].rows) {
      const Result<uint64_t> bytes = BytesOf(found[i], from.deadline_ns);
      get.result = {.status = bytes.status(), .bytes = bytes.ok() ? *bytes : 0};
      get.again = IsGone(bytes.status());
    } else {
      const uint64_t room = found[i].rows * page_bytes;
      get.rows = std::make_unique<ObjectRows>(into.first(std::min<uint64_t>(into.size(), room)),
                                              page_bytes);
    }
  }
}

void ObjectGets::RunSome(const From& from, std::vector<Get>* gets) {
  std::vector<Get*> looked;
  for (Get& get : *gets) {
    if (get.again) looked.push_back(&get);
  }
  Look(from, looked);
  std::vector<RestoreItem> items;
  std::vector<Get*> read;
  for (Get* get : looked) {
    if (get->rows == nullptr) continue;
    RestoreItem& item = items.emplace_back();
    item.branch = BranchId{get->found.branch};
    item.request.end = get->found.rows;
    item.request.tokens = get->rows->ids();
    item.request.into = get->rows->view();
    item.ticket = get->ticket;
    read.push_back(get);
  }
  const Status ran = reads_.RestoreMany(items, TimeLeft(deps_, from.deadline_ns));
  for (size_t i = 0; i < read.size(); ++i) {
    Get& get = *read[i];
    const std::unique_ptr<ObjectRows> rows = std::move(get.rows);
    get.result.status = ran.ok() ? items[i].status : ran;
    get.again = IsGone(get.result.status);
    if (!get.result.status.ok()) continue;
    const std::optional<uint64_t> bytes = rows->bytes();
    const std::vector<uint64_t>& ends = items[i].result.kv_ends;
    const bool whole = bytes == 0 || ends.empty() || ends[0] == get.found.rows;
    if (bytes.has_value() && whole) {
      rows->GiveBytes();
      get.result.bytes = *bytes;
    } else {
      get.result.status = Damaged();
    }
  }
}

void ObjectGets::Run(const From& from, std::span<const ObjectGet> gets, const Begins& begins,
                     const Ended& ended) {
  for (size_t first = 0; first < gets.size(); first += from.at_once) {
    const size_t end = std::min(gets.size(), first + from.at_once);
    std::vector<Get> some;
    for (size_t i = first; i < end; ++i) {
      Get get{.index = i, .object = &gets[i]};
      if (!begins(i, &get.ticket)) continue;
      get.result.status = CheckKey(gets[i].key);
      get.again = get.result.status.ok();
      some.push_back(std::move(get));
    }
    const auto any_again = [&] {
      return std::any_of(some.begin(), some.end(), [](const Get& get) { return get.again; });
    };
    for (int look = 0; look < kLookAgainMax && any_again(); ++look) {
      const Status ran = CatchBadAlloc([&] { RunSome(from, &some); });
      if (ran.ok()) continue;
      for (Get& get : some) {
        if (std::exchange(get.again, false)) get.result = {.status = ran};
      }
    }
    for (Get& get : some) {
      GetResult& result = get.result;
      if (get.again) {
        result.status = Status(StatusCode::kBusy, "the object was replaced again and again");
      } else if (IsGone(result.status)) {
        result.status = NoObject();
        counters_.missed.fetch_add(1, std::memory_order_relaxed);
      } else if (result.status.ok() && result.bytes > get.object->into.size()) {
        result.status =
            Status(StatusCode::kInvalidArgument, "the object has " + std::to_string(result.bytes) +
                                                     " bytes; there is room for " +
                                                     std::to_string(get.object->into.size()));
      } else if (result.status.ok()) {
        counters_.got.fetch_add(1, std::memory_order_relaxed);
        counters_.got_bytes.fetch_add(result.bytes, std::memory_order_relaxed);
      }
      ended(get.index, std::move(result));
    }
  }
}

}  // namespace cairn::engine
