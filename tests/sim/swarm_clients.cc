// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/swarm_clients.h"

#include <algorithm>
#include <memory>

namespace cairn::sim {
namespace {

constexpr size_t kBranchesMax = 4;     // Per client.
constexpr uint64_t kLengthMax = 1500;  // Per branch.

bool IsWrongContent(const Status& status) {
  return status.message().find(kWrongContent) != std::string_view::npos;
}

bool IsCorruption(const Status& status) {
  return status.code() == StatusCode::kCorruption ||
         status.code() == StatusCode::kUnsupportedFormat;
}

}  // namespace

bool NamesAPlace(const Status& status) {
  for (const char* what : {"segment ", "log/", "store/", "copy-", "table", "MANIFEST", "OPTIONS"}) {
    if (status.message().find(what) != std::string_view::npos) return true;
  }
  return false;
}

Result<FoundBranches> ReadAll(const Store& store, bool lied, SwarmResult* result) {
  FoundBranches found;
  for (const char* ns : {"", kMixedNamespace}) {
    CAIRN_ASSIGN_OR_RETURN(const BranchPage page, store.ListBranches(ns, "", SIZE_MAX));
    for (const BranchInfo& info : page.branches) {
      CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.GetBranch(info.id));
      auto state = ReadBranch(branch, info);
      if (!state.ok() && lied && IsCorruption(state.status()) && !IsWrongContent(state.status())) {
        ++result->damaged_reads;
        if (!NamesAPlace(state.status())) return state.status();
        found[{ns, info.name}] = {info.id, nullptr};
        continue;
      }
      CAIRN_RETURN_IF_ERROR(state.status());
      found[{ns, info.name}] = {info.id, Share(std::move(*state))};
    }
  }
  return found;
}

bool SwarmClients::Tell(const Status& status, const std::string& who) {
  if (status.ok()) return true;
  ++result_->refused;
  bool may = false;
  switch (status.code()) {
    case StatusCode::kBusy:
    case StatusCode::kUnknownOutcome:
    case StatusCode::kPoisoned: may = true; break;
    case StatusCode::kCancelled:
    case StatusCode::kDeadlineExceeded: may = config_.has(Feature::kImpatience) || closing_; break;
    case StatusCode::kInvalidState: may = closing_; break;
    case StatusCode::kIoError: may = config_.has_errors(); break;
    case StatusCode::kNoSpace: may = config_.has_small_room(); break;
    // Appends that were not written when the log failed are gone.
    case StatusCode::kNotFound: may = store_ != nullptr && IsPoisoned(); break;
    case StatusCode::kEvicted: may = config_.has(Feature::kCap); break;
    case StatusCode::kCorruption:
    case StatusCode::kUnsupportedFormat: may = faults_.lied() && !options_.hides_lies; break;
    default: break;
  }
  if (status.message().empty() || IsWrongContent(status)) may = false;
  if (!may) {
    const bool poisoned = store_ != nullptr && IsPoisoned();
    Violation(who + (poisoned ? " after the log failed: " : ": ") + status.ToString());
  }
  return may;
}

std::optional<Status> SwarmClients::Work(Store* store, const io::World& world, uint64_t operations,
                                         bool closes_in_the_midst) {
  store_ = store;
  world_ = world;
  left_ = operations;
  closing_ = false;
  working_ = 0;
  std::optional<Status> closed;
  {
    std::vector<std::unique_ptr<io::Thread>> threads;
    for (Client& client : clients_) {
      client.over = false;
      ++working_;
      threads.push_back(world_.scheduler->StartThread("client", [this, &client] {
        Body(client);
        --working_;
      }));
    }
    Client follower;
    follower.random = SeededRandom(random_.Next());
    if (config_.has(Feature::kFollower)) {
      threads.push_back(world_.scheduler->StartThread("follower", [&] { Follow(follower); }));
    }
    if (closes_in_the_midst) {
      while (working_ != 0 && left_ > operations / 2) world_.scheduler->Sleep(100'000);
      closing_ = true;
      closed = store_->Close();
    }
  }
  store_ = nullptr;
  return closed;
}

void SwarmClients::Body(Client& client) {
  while (!stop_ && !client.over && left_ > 0 && result_->violation.empty()) {
    --left_;
    ++result_->operations;
    DoOne(client);
    if (client.random.Below(8) == 0) world_.scheduler->Sleep(client.random.Below(20'000'000));
  }
  Settle(client);
}

void SwarmClients::DoOne(Client& client) {
  if (client.pending.size() > 3) Settle(client);
  const std::optional<size_t> index = Pick(client);
  if (!index.has_value() || known_.count(client.number) == 0) {
    if (known_.count(client.number) < kBranchesMax) return Create(client);
    return Read(client);
  }
  uint32_t total = 4;  // Appends always happen.
  for (const uint32_t weight : weights_) total += weight;
  uint64_t dice = client.random.Below(total);
  size_t op = 0;
  while (op < kOps && dice >= weights_[op]) dice -= weights_[op++];
  if (config_.has(Feature::kSealing) && client.random.Below(12) == 0) op = kTidy;
  if (config_.has(Feature::kCopies) && client.random.Below(40) == 0) op = kCopy;
  if (config_.has(Feature::kFinds) && client.random.Below(5) == 0) op = kFind;
  if (config_.has(Feature::kObjects) && client.random.Below(4) == 0) op = kObjects;
  switch (op) {
    case kAppendMany: return AppendMany(client, *index);
    case kDraft: return CommitDraft(client, *index);
    case kFill: return Fill(client, *index);
    case kCreate: return Create(client);
    case kFork: return Fork(client);
    case kRewind: return Rewind(client, *index);
    case kRename: return Rename(client, *index);
    case kDrop: return Drop(client, *index);
    case kBatch: return Batch(client, *index);
    case kRead: return Read(client);
    case kReadAsync: return ReadAsync(client);
    case kTidy: return config_.has(Feature::kSealing) ? Tidy(client) : Read(client);
    case kCopy: return config_.has(Feature::kCopies) ? Copy() : Read(client);
    case kFind: return Find(client);
    case kObjects: return DoObjects(client);
    default: break;
  }
  if (known_[*index].last().state->tokens.size() > kLengthMax) return Rewind(client, *index);
  Append(client, *index);
}

std::optional<size_t> SwarmClients::Pick(Client& client) {
  std::vector<size_t> mine;
  for (size_t i = 0; i < known_.all().size(); ++i) {
    const KnownBranch& branch = known_[i];
    if (branch.owner == client.number && branch.exists() && !branch.last().open &&
        branch.holders == 0 && !branch.damaged) {
      mine.push_back(i);
    }
  }
  if (mine.empty()) return std::nullopt;
  return mine[client.random.Below(mine.size())];
}

std::optional<size_t> SwarmClients::PickAny(Client& client) {
  std::vector<size_t> quiet;
  for (size_t i = 0; i < known_.all().size(); ++i) {
    const KnownBranch& branch = known_[i];
    if (branch.exists() && !branch.last().open && !branch.damaged) quiet.push_back(i);
  }
  if (quiet.empty()) return std::nullopt;
  return quiet[client.random.Below(quiet.size())];
}

std::optional<Branch> SwarmClients::Handle(size_t index, const std::string& who) {
  const auto handle = store_->GetBranch(known_[index].id);
  if (!Tell(handle.status(), who) || !handle.ok() || known_[index].holders != 0) return {};
  return *handle;
}

SwarmClients::Change SwarmClients::Begin(Durability level) {
  return {.operation = known_.NewOperation(),
          .begin = known_.Tick(),
          .level = level,
          .writable = !IsPoisoned(),
          .branches = {}};
}

void SwarmClients::Push(Change* change, size_t index, State state, const std::string& name,
                        bool loses_kv) {
  KnownBranch& branch = known_[index];
  if (state != nullptr) known_.RecordName({branch.ns, name}, index);
  branch.versions.push_back({.state = std::move(state),
                             .name = name,
                             .operation = change->operation,
                             .begin = change->begin,
                             .open = true,
                             .loses_kv = loses_kv});
  change->branches.push_back(index);
}

void SwarmClients::Make(const Change& change, bool acknowledged) {
  const uint64_t end = known_.Tick();
  for (const size_t index : change.branches) {
    Version& version = known_[index].versions.back();
    version.open = false;
    version.applied = version.end = end;
    if (!acknowledged) continue;
    version.acknowledged = std::max(version.acknowledged, Acknowledged(change.level));
  }
}

void SwarmClients::Unmake(const Change& change) {
  for (const size_t index : change.branches) known_[index].versions.pop_back();
}

bool SwarmClients::End(Client& client, const Change& change, const Status& status,
                       const std::string& who, bool acknowledged) {
  if (status.ok()) {
    Make(change, acknowledged);
    return true;
  }
  Tell(status, who);
  const bool open =
      status.code() == StatusCode::kUnknownOutcome || status.code() == StatusCode::kPoisoned;
  if (!open || !change.writable) {
    Unmake(change);
    return false;
  }
  // The branch shows it, unless the store lost it.
  const size_t index = change.branches.front();
  const KnownBranch& branch = known_[index];
  if (!IsPoisoned() && change.branches.size() == 1 && branch.last().state != nullptr &&
      branch.versions.size() > 1) {
    const State before = branch.versions[branch.versions.size() - 2].state;
    const auto handle = store_->GetBranch(branch.id);
    const auto length = handle.ok() ? handle->length() : Result<uint64_t>(handle.status());
    if (length.ok() && before != nullptr && !IsPoisoned()) {
      if (*length == branch.last().state->tokens.size()) {
        Make(change, false);
        return true;
      }
      if (*length != before->tokens.size()) Violation(who + ": the branch has another length");
      Unmake(change);
      return false;
    }
  }
  client.over = true;
  return false;
}

void SwarmClients::AddPending(Client& client, const Change& change, Ticket ticket) {
  const size_t index = change.branches.front();
  Version& version = known_[index].versions.back();
  version.applied = known_.Tick();
  // An append that will be coalesced has no place in the log yet, and may be refused one.
  version.open = config_.options.delta_batch_tokens > 1;
  if (!version.open) version.end = version.applied;
  client.pending.push_back(
      {std::move(ticket), index, known_[index].versions.size() - 1, change.level});
}

void SwarmClients::Settle(Client& client) {
  for (Pending& pending : std::exchange(client.pending, {})) {
    const Status status = pending.ticket.Wait();
    auto& versions = known_[pending.branch].versions;
    if (pending.version >= versions.size()) continue;  // Refused together with one before it.
    Version& version = versions[pending.version];
    Tell(status, "a ticket");
    if (status.ok()) {
      if (version.end == Version::kNever) version.end = known_.Tick();
      version.open = false;
      version.acknowledged = std::max(version.acknowledged, Acknowledged(pending.level));
      continue;
    }
    if (status.code() == StatusCode::kUnknownOutcome || status.code() == StatusCode::kPoisoned) {
      client.over = true;
    } else if (!version.open) {
      Violation("a ticket of what was applied ended so: " + status.ToString());
    } else {
      versions.resize(pending.version);
    }
  }
}

void SwarmClients::Create(Client& client) {
  const bool mixed = config_.has(Feature::kMixed) && client.random.Below(3) == 0;
  BranchState state;
  state.mixed = mixed;
  state.kv_lengths.resize(state.model().groups.size());
  const ModelSpec spec = state.model();
  const auto model = store_->RegisterModel(spec, Durability::kMemory);
  if (!model.ok()) {
    client.over = IsPoisoned() || client.over;
    return void(Tell(model.status(), "register"));
  }
  if (config_.has(Feature::kCap)) {  // A few hundred positions fit.
    Tell(store_->SetNamespace("", {.max_bytes = 60'000, .evict = Evict::kKv}, Durability::kMemory),
         "policy");
  }
  const std::string ns = mixed ? kMixedNamespace : "", name = NewName(client);
  const Durability level = Level(client);
  const size_t index = known_.Add(client.number, ns);
  Change change = Begin(level);
  Push(&change, index, Share(std::move(state)), name);
  const auto made =
      store_->CreateBranch(*model, {.name = name, .ns = ns, .keep = {}, .durability = level});
  if (made.ok()) known_[index].id = made->id();
  End(client, change, made.status(), "create");
}

// A child may know KV only as far as the nodes it shares do, and a rewind likewise.
void SwarmClients::AdoptKv(size_t index, const Result<Branch>& branch) {
  const auto info = branch.ok() ? branch->Info() : Result<BranchInfo>(branch.status());
  Version& version = known_[index].versions.back();
  if (!info.ok()) return void(Tell(info.status(), "info"));
  BranchState state = *version.state;
  for (size_t group = 0; group < info->kv_lengths.size(); ++group) {
    if (info->kv_lengths[group] > state.kv_lengths[group]) {
      Violation("KV from nowhere of " + version.name);
    }
  }
  state.CutKv(info->kv_lengths);
  version.state = Share(std::move(state));
  version.loses_kv = false;
}

void SwarmClients::Fork(Client& client) {
  const auto source = PickAny(client);
  if (!source.has_value()) return Create(client);
  if (known_.count(client.number) >= kBranchesMax) return Read(client);
  BranchState state = *known_[*source].last().state;
  const uint64_t position = client.random.Below(state.tokens.size() + 1);
  state.Cut(position);
  const std::string ns = known_[*source].ns, name = NewName(client);
  const Durability level = Level(client);
  const size_t index = known_.Add(client.number, ns);
  ++known_[*source].holders;
  Change change = Begin(level);
  Push(&change, index, Share(std::move(state)), name, /*loses_kv=*/true);
  const auto handle = store_->GetBranch(known_[*source].id);
  const auto child =
      handle.ok()
          ? handle->ForkAt(position, {.name = name, .ns = ns, .keep = {}, .durability = level})
          : Result<Branch>(handle.status());
  if (child.ok()) known_[index].id = child->id();
  if (End(client, change, child.status(), "fork")) AdoptKv(index, child);
  --known_[*source].holders;
}

void SwarmClients::Rewind(Client& client, size_t index) {
  const KnownBranch& branch = known_[index];
  BranchState next = *branch.last().state;
  const uint64_t length = next.tokens.size();
  const uint64_t cut = client.random.Below(3) == 0
                           ? client.random.Below(length + 1)
                           : length - std::min<uint64_t>(length, client.random.Below(5));
  next.Cut(cut);
  const Durability level = Level(client);
  auto handle = Handle(index, "rewind");
  if (!handle.has_value()) return;
  Change change = Begin(level);
  Push(&change, index, Share(std::move(next)), branch.last().name, /*loses_kv=*/true);
  const Status status = handle->Rewind(cut, level);
  if (End(client, change, status, "rewind")) AdoptKv(index, *handle);
}

void SwarmClients::Rename(Client& client, size_t index) {
  const KnownBranch& branch = known_[index];
  const std::string name = NewName(client);
  const Durability level = Level(client);
  auto handle = Handle(index, "rename");
  if (!handle.has_value()) return;
  Change change = Begin(level);
  Push(&change, index, branch.last().state, name);
  const Status status = handle->Rename(name, level);
  if (!status.ok() && !IsPoisoned() && status.code() == StatusCode::kUnknownOutcome) {
    client.over = true;
    return void(Tell(status, "rename"));
  }
  End(client, change, status, "rename");
}

void SwarmClients::Drop(Client& client, size_t index) {
  const KnownBranch& branch = known_[index];
  const Durability level = Level(client);
  auto handle = Handle(index, "drop");
  if (!handle.has_value()) return;
  Change change = Begin(level);
  Push(&change, index, nullptr, branch.last().name);
  End(client, change, handle->Drop(level), "drop");
}

// Appends to one branch, and makes another or drops one of the client's: both or none.
void SwarmClients::Batch(Client& client, size_t index) {
  BranchState next = *known_[index].last().state;
  const std::vector<TokenId> one = {static_cast<TokenId>(client.random.Below(50'000))};
  const std::vector<TokenId> two = {1, static_cast<TokenId>(client.random.Below(50'000))};
  next.tokens.insert(next.tokens.end(), one.begin(), one.end());
  const auto handle = Handle(index, "batch");
  if (!handle.has_value()) return;
  WriteBatch batch;
  batch.Append(*handle, {.tokens = one});
  const auto other = Pick(client);
  const bool drops = other.has_value() && *other != index && client.random.Below(2) == 0;
  const Durability level = Level(client);
  if (!drops && known_.count(client.number) >= kBranchesMax) return Append(client, index);
  if (drops) {
    const auto dropped = Handle(*other, "batch");
    if (!dropped.has_value() || known_[index].holders != 0) return;
    batch.Drop(*dropped);
    Change change = Begin(level);
    Push(&change, index, Share(std::move(next)), known_[index].last().name);
    Push(&change, *other, nullptr, known_[*other].last().name);
    auto written = store_->Write(batch, {.durability = level});
    End(client, change, written.ok() ? written->ticket.Wait() : written.status(), "batch");
    return;
  }
  const auto model = store_->RegisterModel(TinyModel(), Durability::kMemory);
  if (!Tell(model.status(), "batch") || !model.ok() || known_[index].holders != 0) return;
  const std::string name = NewName(client);
  const int made = batch.Create(*model, {.name = name, .ns = ""});
  batch.Append(made, {.tokens = two});
  const size_t added = known_.Add(client.number, "");
  BranchState fresh;
  fresh.tokens = two;
  fresh.kv_lengths = {0};
  Change change = Begin(level);
  Push(&change, index, Share(std::move(next)), known_[index].last().name);
  Push(&change, added, Share(std::move(fresh)), name);
  auto written = store_->Write(batch, {.durability = level});
  if (written.ok()) known_[added].id = written->created[0].id();
  End(client, change, written.ok() ? written->ticket.Wait() : written.status(), "batch");
}

void SwarmClients::Tidy(Client& client) {
  switch (client.random.Below(5)) {
    case 0: {
      const uint64_t begin = known_.Tick();
      const Status flushed = store_->Flush();
      if (!Tell(flushed, "flush") || !flushed.ok()) return;
      known_.Acknowledge(begin, Durability::kPower);
      return objects_.Acknowledge(begin, Durability::kPower);
    }
    case 1: {
      const auto report = store_->Verify(VerifyLevel::kAll);
      if (!report.ok()) return void(Tell(report.status(), "verify"));
      for (const VerifyReport::Damage& damage : report->damages) {
        // Unreadable content is reported as damage, too.
        if (config_.has_errors() && damage.what.find("IoError") != std::string::npos) continue;
        Tell(Status(StatusCode::kCorruption, damage.where + ": " + damage.what), "verify");
      }
      return;
    }
    case 2: {
      const Status paused = store_->PauseBackground();
      if (!paused.ok()) return void(Tell(paused, "pause"));
      world_.scheduler->Sleep(client.random.Below(30'000'000));
      Tell(store_->ResumeBackground(), "resume");
      return;
    }
    default: {
      const Status compacted = store_->Compact();
      // Another client may have paused the background.
      if (compacted.code() != StatusCode::kInvalidState) Tell(compacted, "compact");
    }
  }
}

void SwarmClients::Copy() {
  const std::string path = "copy-" + std::to_string(++next_copy_);
  const uint64_t from = known_.Tick();
  const auto copied = store_->Checkpoint(path);
  const uint64_t until = known_.Tick();
  if (copied.status().code() == StatusCode::kInvalidState) return;  // The background is paused.
  if (!copied.ok()) return void(Tell(copied.status(), "checkpoint"));
  if (faults_.lied() && !options_.hides_lies) return;
  ++result_->copies;
  Options options = config_.options;
  options.create_if_missing = false;
  options.read_only = true;
  options.world = std::make_shared<const io::World>(world_);
  auto copy = Store::Open(path, options);
  if (!copy.ok()) return void(Tell(copy.status(), "open copy"));
  const auto found = ReadAll(*copy, false, result_);
  if (!found.ok()) return void(Tell(found.status(), "read copy"));
  if (IsPoisoned()) return;
  const std::string wrong = known_.CompareCopy(*found, from, until);
  if (!wrong.empty()) Violation(path + ": " + wrong);
}

// Beside the writer: shows an earlier state.
void SwarmClients::Follow(Client& client) {
  Options options = config_.options;
  options.create_if_missing = false;
  options.read_only = true;
  options.world = std::make_shared<const io::World>(world_);
  while (!stop_ && working_ != 0 && result_->violation.empty()) {
    auto follower = Store::Open("store", options);
    const auto told = [&](const Status& status, const char* who) {
      const StatusCode code = status.code();
      return code == StatusCode::kStale || code == StatusCode::kNotFound || Tell(status, who);
    };
    if (!follower.ok()) told(follower.status(), "follow");
    for (int round = 0; follower.ok() && round < 3 && !stop_; ++round) {
      const auto found = ReadAll(*follower, faults_.lied(), result_);
      ++result_->follows;
      // A refresh in the midst of reading mixes two times: the branch is shorter then, or its
      // states lie elsewhere. What is really gone is so again.
      const auto read_again = [&] {
        return ReadAll(*follower, faults_.lied(), result_).status().ToString();
      };
      const bool mixes = found.status().code() == StatusCode::kInvalidArgument ||
                         found.status().message().find(kWrongContent) != std::string_view::npos ||
                         (found.status().code() == StatusCode::kEvicted &&
                          read_again() != found.status().ToString());
      if (!mixes) told(found.status(), "read of a follower");
      for (const auto& [name, branch] : found.ok() ? *found : FoundBranches()) {
        if (branch.state == nullptr || known_.WasOnce(name, *branch.state)) continue;
        const auto refreshed = follower->Refresh();
        const auto again = ReadAll(*follower, faults_.lied(), result_);
        const auto at = again.ok() ? again->find(name) : FoundBranches::const_iterator();
        if (refreshed.ok() && again.ok() && at != again->end() && at->second.state != nullptr &&
            *at->second.state == *branch.state && !known_.WasOnce(name, *branch.state)) {
          Violation("a follower shows something else of " + name.second);
        }
      }
      world_.scheduler->Sleep(client.random.Below(20'000'000));
      told(follower->Refresh().status(), "refresh");
    }
    world_.scheduler->Sleep(1'000'000 + client.random.Below(50'000'000));
  }
}

}  // namespace cairn::sim
