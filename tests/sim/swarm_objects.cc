// SPDX-License-Identifier: Apache-2.0
//
// The clients' operations on objects, each with keys of its own.
#include <algorithm>

#include "cairn/objects.h"
#include "tests/sim/swarm_clients.h"

namespace cairn::sim {
namespace {

constexpr uint64_t kKeysOfClient = 5;

// The change may have been made.
bool IsOpen(const Status& status) {
  return status.code() == StatusCode::kUnknownOutcome || status.code() == StatusCode::kPoisoned;
}

}  // namespace

KnownObjects::Doubts SwarmClients::Doubts() const {
  return {.lied = faults_.lied() && !options_.hides_lies, .may_go = config_.has(Feature::kCap)};
}

// Some of the client's, each once.
std::vector<std::string> SwarmClients::PickKeys(Client& client) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < kKeysOfClient; ++i) {
    if (client.random.Below(2) == 0) continue;
    const char* const kind = config_.has(Feature::kLarge) && i == 0 ? "L" : "k";
    keys.push_back(kind + std::to_string(client.number) + "." + std::to_string(i));
  }
  return keys;
}

void SwarmClients::PutObjects(Client& client, const std::vector<std::string>& keys) {
  const auto object_class =
      Objects(*store_).RegisterClass({.name = "pages", .page_bytes = kObjectPageBytes});
  if (!object_class.ok()) return static_cast<void>(Tell(object_class.status(), "object class"));
  const bool writable = !IsPoisoned(), replaces = client.random.Below(2) == 0;
  const Durability level = Level(client);
  std::vector<ObjectBytes> values;
  std::vector<ObjectPut> puts;
  std::vector<std::optional<bool>> there;
  for (const std::string& key : keys) {
    values.push_back(MakeObject(key, ++next_generation_));
    there.push_back(objects_.Knows(key) ? objects_.IsThere(key) : false);
    objects_.Begin(key, next_generation_);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    puts.push_back({.key = keys[i],
                    .value = values[i],
                    .depth = static_cast<uint32_t>(client.random.Below(4))});
  }
  const auto results = Objects(*store_).PutBatch(
      puts, {.object_class = *object_class,
             .if_present = replaces ? IfPresent::kReplace : IfPresent::kKeep,
             .durability = level});
  const uint64_t time = known_.Tick();
  for (size_t i = 0; i < keys.size(); ++i) {
    const Status status = results.ok() ? (*results)[i].status : results.status();
    const bool sure = !Doubts().lied && !Doubts().may_go && !IsPoisoned() && there[i].has_value();
    if (!Tell(status, "put") || (!status.ok() && !(IsOpen(status) && writable))) {
      objects_.Unmake(keys[i]);
    } else if (!status.ok()) {
      client.over = true;
    } else if ((*results)[i].stored) {
      if (sure && !replaces && *there[i]) Violation("put again was " + keys[i]);
      objects_.Make(keys[i], time, Acknowledged(level));
    } else {
      if (replaces || (sure && !*there[i])) Violation("kept is what is not there, " + keys[i]);
      objects_.Unmake(keys[i]);
    }
  }
}

void SwarmClients::DeleteObjects(Client& client, const std::vector<std::string>& keys) {
  const bool writable = !IsPoisoned();
  const Durability level = Level(client);
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<std::optional<bool>> there;
  for (const std::string& key : keys) {
    there.push_back(objects_.Knows(key) ? objects_.IsThere(key) : false);
    objects_.Begin(key, 0);
  }
  const auto outcomes = Objects(*store_).Delete(views, {}, level);
  const uint64_t time = known_.Tick();
  for (size_t i = 0; i < keys.size(); ++i) {
    const Status status = outcomes.ok() ? (*outcomes)[i] : outcomes.status();
    const bool sure = !Doubts().lied && !Doubts().may_go && !IsPoisoned() && there[i].has_value();
    if (status.ok()) {
      if (sure && !*there[i]) Violation("deleted is what is not there, " + keys[i]);
      objects_.Make(keys[i], time, Acknowledged(level));
    } else if (status.code() == StatusCode::kNotFound) {
      if (sure && *there[i]) Violation("not found, to be deleted, " + keys[i]);
      objects_.Unmake(keys[i]);
    } else if (!Tell(status, "delete") || !IsOpen(status) || !writable) {
      objects_.Unmake(keys[i]);
    } else {
      client.over = true;
    }
  }
}

// The content of each object; nothing: it is unknown.
std::vector<std::optional<SwarmClients::ReadObject>> SwarmClients::ReadObjects(
    const Store& store, const std::vector<std::string>& keys, const char* who) {
  std::vector<ObjectBytes> into;
  std::vector<ObjectGet> gets;
  for (const std::string& key : keys) into.emplace_back(objects_.BytesMax(key));
  for (size_t i = 0; i < keys.size(); ++i) gets.push_back({.key = keys[i], .into = into[i]});
  const auto results = Objects(store).GetBatch(gets);
  std::vector<std::optional<ReadObject>> read(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const Status status = results.ok() ? (*results)[i].status : results.status();
    if (status.ok()) {
      into[i].resize((*results)[i].bytes);
      read[i] = std::move(into[i]);
      ++result_->objects_read;
    } else if (status.code() == StatusCode::kNotFound) {
      read[i] = ReadObject();
    } else {
      Tell(status, who);
    }
  }
  return read;
}

void SwarmClients::GetObjects(Client& client, const std::vector<std::string>& keys) {
  const bool poisoned = IsPoisoned();
  const auto read = ReadObjects(*store_, keys, "get");
  client.over |= IsPoisoned();
  for (size_t i = 0; i < keys.size() && !poisoned && !IsPoisoned(); ++i) {
    if (!read[i].has_value()) continue;
    const std::string wrong = objects_.Look(keys[i], *read[i], Doubts());
    if (!wrong.empty()) Violation(wrong);
  }
}

// The answers of Exists match the known objects, and leased ones can be read.
void SwarmClients::GetOnLease(Client& client, const std::vector<std::string>& keys) {
  constexpr uint64_t kLeaseNs = 60'000'000'000;
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  const uint64_t until_ns = world_.scheduler->MonotonicNs() + kLeaseNs;
  const auto found = Objects(*store_).Exists(views, {}, kLeaseNs);
  client.over |= IsPoisoned();
  if (!Tell(found.status(), "exists") || !found.ok() || client.over) return;
  std::vector<std::string> there;
  KnownObjects::Doubts doubts = Doubts();
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto known = objects_.IsThere(keys[i]);
    // One whose record cannot be read is not there, for this call.
    const bool may_miss = doubts.may_go || config_.has_errors();
    const bool may_differ = doubts.lied || (may_miss && !(*found)[i]);
    if (known.has_value() && *known != (*found)[i] && !may_differ) {
      Violation("Exists says something else of " + keys[i]);
    }
    if ((*found)[i]) there.push_back(keys[i]);
  }
  const auto read = ReadObjects(*store_, there, "get on lease");
  const bool held = found->lease != LeaseId{} && world_.scheduler->MonotonicNs() < until_ns;
  for (size_t i = 0; i < there.size() && held && !IsPoisoned(); ++i) {
    if (!read[i].has_value()) continue;
    doubts.may_go = false;
    const std::string wrong = objects_.Look(there[i], *read[i], doubts);
    if (!wrong.empty()) Violation("on lease, " + wrong);
  }
  if (!IsPoisoned()) Tell(store_->Release(found->lease), "release");
}

void SwarmClients::DoObjects(Client& client) {
  const std::vector<std::string> keys = PickKeys(client);
  std::vector<std::string> known = keys;
  std::erase_if(known, [&](const std::string& key) { return !objects_.Knows(key); });
  switch (client.random.Below(8)) {
    case 0:
    case 1:
    case 2: return PutObjects(client, keys);
    case 3: return DeleteObjects(client, keys);
    case 4: {
      const std::vector<std::string_view> views(keys.begin(), keys.end());
      return static_cast<void>(Tell(Objects(*store_).Touch(views), "touch"));
    }
    case 5: return GetOnLease(client, known);
    default: return GetObjects(client, known);
  }
}

std::string SwarmClients::AdoptObjects(const Store& store, Durability survived) {
  const KnownObjects::Doubts doubts = Doubts();
  const std::vector<std::string> keys = objects_.Keys();
  const auto read = ReadObjects(store, keys, "get when opened");
  std::string wrong;
  for (size_t i = 0; i < keys.size() && wrong.empty(); ++i) {
    if (read[i].has_value()) wrong = objects_.Adopt(keys[i], *read[i], survived, doubts);
  }
  if (doubts.lied || doubts.may_go || !wrong.empty()) return wrong;
  std::vector<std::string> there, listed;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (read[i].has_value() && read[i]->has_value()) there.push_back(keys[i]);
  }
  const auto page = Objects(store).List({}, SIZE_MAX);
  if (!page.ok()) return "the list of objects: " + page.status().ToString();
  for (const ObjectInfo& info : page->objects) listed.push_back(info.key);
  return listed == there ? "" : "the list of objects is another";
}

}  // namespace cairn::sim
