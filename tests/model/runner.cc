// SPDX-License-Identifier: Apache-2.0
#include "tests/model/runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "base/core/check.h"
#include "base/io/file_util.h"
#include "tests/model/comparison.h"
#include "tests/model/kv_rows.h"
#include "tests/model/prefixes.h"
#include "tests/model/reference_model.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kLengthMax = 64;
constexpr uint64_t kLargeLengthMax = 80;
// Room for what may not go: what is pinned, with the dead end of its node, the branch that asks,
// and all tokens. It is a third of what the branches could have.
constexpr uint64_t kEvictingBytes = 40 << 10;
constexpr size_t kPinnedMax = 1;
constexpr uint64_t kChildSeconds = 60;
constexpr int kQuietTries = 20;
constexpr uint64_t kQuietNs = 1'000'000'000;

std::vector<ModelSpec> Models() {
  ModelSpec two = TinyModel("two groups");
  two.groups.push_back(LayerGroup::Mla(1, 12, 4, Dtype::kBf16));
  return {TokenModel(), TinyModel(), two};
}

class Runner {
 public:
  Runner(const OptionSet& set, uint64_t seed)
      : set_(set),
        specs_(Models()),
        random_(seed),
        model_(kGroups),
        compare_(specs_, model_),
        prefixes_(specs_, model_) {
    if (set.world == "simulated") {
      machine_ = io::MakeSimWorld(seed);
      path_ = "/store";
    } else {
      other_ = TestWorld::Make(set.world, seed);
      Holds(other_ != nullptr, "the world is not granted on this machine");
      path_ = other_->path();
    }
  }

  RunResult Run(const Script& script) {
    size_t at = 0;
    try {
      Open();
      MustBeOk(store_.SetNamespace("e", Evicting()), "namespace e");
      model_.SetPolicy("e", Evicting());
      if (set_.options.index != Index::kNone) {
        const NamespacePolicy chunks{.index = Index::kChunks};
        MustBeOk(store_.SetNamespace("", chunks), "the namespace without a name");
        model_.SetPolicy("", chunks);
      }
      for (; at < script.size(); ++at) Do(script[at]);
      End();
    } catch (const Mismatch& mismatch) {
      result_.failure =
          mismatch.what + (at < script.size() ? " (operation " + std::to_string(at) + ": " +
                                                    ToString({script[at]}) + ")"
                                              : " (at the end)");
    }
    result_.digest = compare_.digest();
    result_.approximate_bytes = compare_.approximate_bytes();
    result_.found = prefixes_.found();
    result_.chunks_found = prefixes_.chunks_found();
    result_.planned = prefixes_.planned();
    return result_;
  }

 private:
  static constexpr size_t kGroups = 2;

  static NamespacePolicy Evicting() { return {.max_bytes = kEvictingBytes, .evict = Evict::kKv}; }

  struct Slot {
    uint64_t id = 0;  // The model's; 0: never taken.
    BranchId branch{};
  };

  // ---------------------------------------------------------------- opening

  Options StoreOptions() const {
    Options options = set_.options;
    options.world = World();
    return options;
  }
  std::shared_ptr<const io::World> World() const {
    return machine_ ? std::make_shared<io::World>(machine_->world())
                    : std::make_shared<io::World>(other_->world());
  }

  void Open() {
    auto opened = Store::Open(path_, StoreOptions());
    MustBeOk(opened, "Open");
    store_ = std::move(*opened);
    model_ids_.clear();
    for (const ModelSpec& spec : specs_) {
      auto id = store_.RegisterModel(spec, Durability::kMemory);
      MustBeOk(id, "RegisterModel");
      model_ids_.push_back(*id);
    }
  }

  void AddMetrics() {
    const StoreMetrics metrics = store_.Metrics();
    result_.joined += metrics.joined_nodes;
    result_.evicted_bytes += metrics.evicted_bytes;
    result_.seals += metrics.seals;
    result_.tables_rewritten += metrics.rewritten_tables;
    result_.segments_retired += metrics.retired_segments;
    result_.loads += metrics.tree_loads;
  }

  void Close() {
    AddMetrics();
    MustBeOk(store_.Close(), "Close");
    store_ = Store();
  }

  void Reopen() {
    Close();
    Open();
    CompareAll(store_);
  }

  // The machine stops. All that was applied is flushed before: what a crash may take is another
  // test's business (tests/crash).
  void Kill() {
    if (!machine_) return Reopen();
    MustBeOk(store_.Flush(), "Flush");
    AddMetrics();
    const io::SimWorld found =
        io::CrashWorld(*machine_->disk, io::CrashChoice::KeepAll(), /*timed=*/true);
    static_cast<void>(store_.Close());
    store_ = Store();
    machine_ = found;
    Open();
    CompareAll(store_);
  }

  void Copy() {
    const std::string path = path_ + ".copy" + std::to_string(copies_++);
    MustBeOk(store_.Checkpoint(path), "Checkpoint");
    auto opened = Store::Open(path, StoreOptions());
    MustBeOk(opened, "Open of a copy");
    CompareAll(*opened);
    MustBeOk(opened->Close(), "Close of a copy");
  }

  // ---------------------------------------------------------------- operations

  void CompareAll(Store& store) {
    compare_.All(store, Ids());
    if (set_.options.index != Index::kNone) prefixes_.Compare(store, Ids());
  }

  BranchIds Ids() {
    BranchIds ids;
    for (const Slot& slot : slots_) {
      if (Find(slot) != nullptr) ids.emplace(slot.id, slot.branch);
    }
    return ids;
  }

  uint64_t Number() { return random_(); }
  Branch Handle(const Slot& slot) { return Branch(store_.core(), slot.branch); }
  ModelBranch* Find(const Slot& slot) {
    const auto found = model_.branches().find(slot.id);
    return found == model_.branches().end() ? nullptr : &found->second;
  }
  static std::string Name(uint32_t number) {
    return number == 0 ? "" : "n" + std::to_string(number);
  }
  Durability Level(Durability asked = Durability::kMemory) const {
    return std::max(asked, set_.at_least);
  }
  bool IsFull(const ModelBranch& branch) const { return model_.Policy(branch.ns).max_bytes == 1; }

  void Do(const ScriptOp& op) {
    Slot& slot = slots_[op.a % kSlots];
    ++result_.operations;
    switch (op.kind) {
      case OpKind::kCreate: return Create(op, &slot);
      case OpKind::kPolicy: return Policy(op.a % 5);
      case OpKind::kList: return compare_.Listings(store_, Ids(), op.a == 0 ? SIZE_MAX : op.a);
      case OpKind::kFlush: return MustBeOk(store_.Flush(), "Flush");
      case OpKind::kCompact: return Compact();
      case OpKind::kVerify: return Verify(static_cast<VerifyLevel>(op.a % 3));
      case OpKind::kReopen: return Reopen();
      case OpKind::kKill: return Kill();
      case OpKind::kCopy: return Copy();
      default: break;
    }
    ModelBranch* const branch = Find(slot);
    if (slot.id == 0) {
      --result_.operations;
      return;
    }
    if (branch == nullptr) return Gone(op, slot);
    switch (op.kind) {
      case OpKind::kAppend: return Append(op, slot, branch, op.b % 16);
      case OpKind::kLarge: return Append({.kind = OpKind::kAppend}, slot, branch, op.b % 128);
      case OpKind::kMany: return Many(op, slot, branch);
      case OpKind::kDraft: return MakeDraft(op, slot, branch);
      case OpKind::kBatch: return Batch(op, slot, branch);
      case OpKind::kFork: return Fork(op, slot, branch);
      case OpKind::kRewind: return Rewind(op, slot, branch);
      case OpKind::kDrop: return Drop(slot);
      case OpKind::kRename: return Rename(op, slot, branch);
      case OpKind::kFill: return Fill(op, slot, branch);
      case OpKind::kRefill: return Refill(slot, branch);
      case OpKind::kKeep: return SetKeep(op, slot, branch);
      case OpKind::kRead: return Read(op, slot, branch);
      case OpKind::kWrong: return Wrong(op, slot, branch);
      default: Fail("an operation of no kind");
    }
  }

  // Every call about a branch that was dropped.
  void Gone(const ScriptOp& op, const Slot& slot) {
    Branch branch = Handle(slot);
    const std::vector<TokenId> one{1};
    switch (op.kind) {
      case OpKind::kFork: return Expect(StatusCode::kNotFound, branch.ForkAt(0, {}), "ForkAt");
      case OpKind::kRewind: return Expect(StatusCode::kNotFound, branch.Rewind(0), "Rewind");
      case OpKind::kRename: return Expect(StatusCode::kNotFound, branch.Rename("x"), "Rename");
      case OpKind::kDrop: return Expect(StatusCode::kNotFound, branch.Drop(), "Drop");
      case OpKind::kKeep: return Expect(StatusCode::kNotFound, branch.SetKeep({}), "SetKeep");
      case OpKind::kRead:
        return Expect(StatusCode::kNotFound, branch.ReadTokens(0, 0), "ReadTokens");
      case OpKind::kDraft: return Expect(StatusCode::kNotFound, branch.BeginAppend(1), "Draft");
      case OpKind::kMany:
        return Expect(StatusCode::kNotFound, branch.Append({.tokens = one}), "Append");
      case OpKind::kAppend:
        return Expect(StatusCode::kNotFound, branch.AppendSync({.tokens = one}), "AppendSync");
      default: return Expect(StatusCode::kNotFound, branch.Info(), "Info");
    }
  }

  // The code that the model says; counted when it is an error, and part of what was read.
  template <typename T>
  void Expect(StatusCode code, const T& result, const char* what) {
    MustBe(code, result, what);
    compare_.Digest(static_cast<uint64_t>(code));
    result_.refused += code == StatusCode::kOk ? 0 : 1;
  }

  void Create(const ScriptOp& op, Slot* slot) {
    if (Find(*slot) != nullptr) {
      --result_.operations;
      return;
    }
    const std::string name = Name(op.b), ns = kNamespaces[op.c % 4];
    const size_t which = ns == "q" ? 0 : op.d / 4 % specs_.size();
    const Keep keep{.pinned = false, .priority = static_cast<uint8_t>(op.d % 4), .ttl_ns = 0};
    auto made = store_.CreateBranch(model_ids_[which],
                                    {.name = name, .ns = ns, .keep = keep, .durability = Level()});
    const bool taken = model_.HasName(ns, name);
    Expect(taken ? StatusCode::kAlreadyExists : StatusCode::kOk, made, "CreateBranch");
    if (taken) return;
    *slot = {next_id_++, made->id()};
    model_.Create(slot->id, name, ns, keep, which);
  }

  // The content of an append; kept until it was given.
  struct Added {
    std::vector<TokenId> tokens;
    std::vector<RowRange> rows;
    std::vector<uint64_t> seeds;
    std::unique_ptr<KvRows> kv;
    std::optional<SamplerState> sampler;
    std::optional<AppMetadata> metadata;
    std::vector<ContentSpan> spans;
    Delta delta() const {
      Delta delta;
      delta.tokens = tokens;
      delta.kv = kv == nullptr ? nullptr : kv->view();
      if (sampler) delta.sampler = &*sampler;
      if (metadata) delta.metadata = &*metadata;
      delta.spans = spans;
      delta.exact = exact();
      return delta;
    }
    bool exact() const { return seeds.empty() || IsExact(seeds[0]); }
    // Those of one delta are all exact, or none of them is.
    void AddSeed(uint64_t seed) {
      seeds.push_back(seeds.empty() ? seed : exact() ? seed & ~uint64_t{7} : seed | 7);
    }
  };

  // Positions by which the KV of a group ends before the tokens.
  static uint64_t Lag(uint32_t how, size_t group) {
    switch (how % 5) {
      case 0: return 0;
      case 1: return kLengthMax + 200;
      case 2: return group == 0 ? 0 : 1;
      case 3: return 1;
      default: return group == 0 ? 2 : 0;
    }
  }

  static std::unique_ptr<KvRows> RowsOf(const ModelSpec& spec, const Added& added) {
    auto rows = std::make_unique<KvRows>(spec, added.rows);
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      const auto [begin, count] = added.rows[group];
      for (uint64_t at = begin; at < begin + count; ++at)
        rows->Write(group, at, added.seeds[group]);
    }
    return rows;
  }

  Added MakeAdded(const ModelBranch& branch, uint64_t count, uint32_t lag, uint32_t flags) {
    const ModelSpec& spec = specs_[branch.model];
    Added added;
    for (uint64_t i = 0; i < count; ++i) {
      added.tokens.push_back(static_cast<TokenId>(Number() % 200'000));
    }
    const uint64_t length = branch.length(), end = length + count;
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      const uint64_t begin = branch.kv_length(group);
      const uint64_t kv_end = std::max(begin, end - std::min(end, Lag(lag, group)));
      added.rows.push_back({begin, kv_end - begin});
      added.AddSeed(Number());
    }
    if (!spec.groups.empty() && lag % 5 != 1) {
      added.kv = RowsOf(spec, added);
    }
    if ((flags & kAppendSampler) != 0) {
      added.sampler.emplace();
      added.sampler->generator = GeneratorKind::kPhilox;
      added.sampler->philox_seed = Number();
    }
    if ((flags & kAppendMetadata) != 0) {
      added.metadata.emplace();
      added.metadata->content_type = "n";
      const uint64_t number = Number();
      added.metadata->bytes.resize(sizeof(number));
      std::memcpy(added.metadata->bytes.data(), &number, sizeof(number));
    }
    if ((flags & kAppendSpan) != 0 && count != 0) {
      added.spans.push_back({.begin = length + count / 3,
                             .end = end,
                             .hash = {Number(), Number()},
                             .atomic = (flags & kAppendAtomicSpan) != 0});
    }
    return added;
  }

  void AddToModel(uint64_t id, const Added& added, bool ends_turn) {
    if (!added.tokens.empty()) model_.Append(id, added.tokens);
    ModelBranch& branch = model_.branches().at(id);
    prefixes_.OnAppended(branch, added.tokens.size());
    const Persist persist = model_.Policy(branch.ns).persist;
    const bool keeps = persist == Persist::kAlways || (persist == Persist::kTurnEnd && ends_turn);
    if (added.kv != nullptr && keeps) AddKvToModel(id, added);
    if (added.sampler) branch.samplers[branch.length()] = added.sampler->philox_seed;
    if (added.metadata) {
      std::memcpy(&branch.metadata[branch.length()], added.metadata->bytes.data(), 8);
    }
    branch.spans.insert(branch.spans.end(), added.spans.begin(), added.spans.end());
  }
  void AddKvToModel(uint64_t id, const Added& added) {
    for (size_t group = 0; group < added.rows.size(); ++group) {
      const RowRange& rows = added.rows[group];
      model_.AddKv(id, group, rows.begin, rows.count, added.seeds[group]);
    }
  }

  void RewindModel(uint64_t id, uint64_t length) {
    prefixes_.OnCut(model_.branches().at(id));
    model_.Rewind(id, length);
  }
  void DropFromModel(uint64_t id) {
    prefixes_.OnCut(model_.branches().at(id));
    model_.Drop(id);
  }

  // Whether it may grow by this many; else the operation does nothing.
  bool Fits(const ModelBranch& branch, uint64_t count) {
    if (count != 0 && branch.length() + count <= std::max(kLengthMax, LargeMax(count))) return true;
    --result_.operations;
    return false;
  }
  static uint64_t LargeMax(uint64_t count) { return count > 16 ? kLargeLengthMax : 0; }

  void Append(const ScriptOp& op, const Slot& slot, ModelBranch* branch, uint64_t count) {
    if (!Fits(*branch, count)) return;
    const Added added = MakeAdded(*branch, count, op.c, op.d);
    AppendOptions options;
    options.ends_turn = (op.d & kAppendEndsTurn) != 0;
    options.durability = Level((op.d & kAppendPower) != 0     ? Durability::kPower
                               : (op.d & kAppendProcess) != 0 ? Durability::kProcess
                                                              : Durability::kMemory);
    if ((op.d & kAppendExpects) != 0) options.expected_length = branch->length();
    const StatusCode code = IsFull(*branch) ? StatusCode::kNoSpace : StatusCode::kOk;
    Status status;
    bool busy = (op.d & kAppendAsync) == 0;
    if (!busy) {
      auto ticket = Handle(slot).Append(added.delta(), options);
      status = ticket.status();
      if (status.ok() && !ticket->released()) status = ticket->Wait();
      busy = status.code() == StatusCode::kBusy;  // For want of room; nothing was applied.
    }
    if (busy) status = Handle(slot).AppendSync(added.delta(), options).status();
    Expect(code, status, "Append");
    if (code != StatusCode::kOk) return;
    AddToModel(slot.id, added, options.ends_turn);
    // Else it may wait to be coalesced, and looking at it would end that.
    if ((op.d & kAppendAsync) == 0) compare_.Info(store_, slot.id, slot.branch);
  }

  // The store may make one record of some of them.
  void Many(const ScriptOp& op, const Slot& slot, ModelBranch* branch) {
    const uint64_t count = op.b % 16;
    if (!Fits(*branch, count)) return;
    const StatusCode code = IsFull(*branch) ? StatusCode::kNoSpace : StatusCode::kOk;
    std::vector<Ticket> tickets;
    for (uint64_t i = 0; i < count; ++i) {
      const Added added = MakeAdded(*branch, 1, 0, op.d & kAppendSampler);
      AppendOptions options;
      options.durability = Level();
      auto ticket = Handle(slot).Append(added.delta(), options);
      Status status = ticket.status();
      if (status.ok() && !ticket->released()) status = ticket->Wait();
      if (status.code() == StatusCode::kBusy) {
        status = Handle(slot).AppendSync(added.delta(), options).status();
      } else if (status.ok()) {
        tickets.push_back(std::move(*ticket));
      }
      Expect(code, status, "Append of many");
      if (code == StatusCode::kOk) AddToModel(slot.id, added, false);
    }
    if (op.c != 0) return;
    for (Ticket& ticket : tickets) MustBeOk(ticket.Wait(), "Wait");
    compare_.Info(store_, slot.id, slot.branch);
  }

  // Staged layer by layer; of what was staged some is appended.
  void MakeDraft(const ScriptOp& op, const Slot& slot, ModelBranch* branch) {
    const uint64_t staged = op.b % 16, taken = std::min<uint64_t>(op.c, staged);
    if (!Fits(*branch, staged)) return;
    Added added = MakeAdded(*branch, staged, 0, 0);
    auto draft = Handle(slot).BeginAppend(staged);
    MustBeOk(draft, "BeginAppend");
    const ModelSpec& spec = specs_[branch->model];
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      for (uint32_t layer = 0; layer < spec.groups[group].layers; ++layer) {
        MustBeOk(draft->Put(layer, added.kv->LayerView(group, layer)), "Put");
      }
    }
    const uint64_t length = branch->length();
    if (op.d != 0) Append({.kind = OpKind::kAppend}, slot, branch, 1);
    if (taken == 0) return draft->Abort();
    added.tokens.resize(taken);
    for (RowRange& rows : added.rows) rows.count = length + taken - rows.begin;
    Result<Ticket> ticket = Status(StatusCode::kBusy, "");
    Status status;
    do {  // Commit never waits.
      ticket =
          draft->Commit({.tokens = added.tokens, .exact = added.exact()}, {.durability = Level()});
      status = ticket.ok() ? ticket->Wait() : ticket.status();
      if (status.code() == StatusCode::kBusy) Pause();
    } while (!ticket.ok() && status.code() == StatusCode::kBusy);
    if (ticket.ok() && status.code() == StatusCode::kBusy) {
      // It was borrowed, and there was no room for it later: the draft is over, nothing was
      // applied.
      added.kv = RowsOf(spec, added);
      status = Handle(slot).AppendSync(added.delta(), {.durability = Level()}).status();
    }
    const bool changed = op.d != 0 && !IsFull(*branch);
    Expect(changed           ? StatusCode::kConflict
           : IsFull(*branch) ? StatusCode::kNoSpace
                             : StatusCode::kOk,
           status, "Commit");
    if (status.ok()) AddToModel(slot.id, added, false);
  }

  void Pause() { World()->scheduler->Sleep(200'000); }

  void Batch(const ScriptOp& op, const Slot& slot, ModelBranch* branch) {
    Slot& second = slots_[op.b % kSlots];
    ModelBranch* const other = &second == &slot ? nullptr : Find(second);
    const uint64_t count = op.d % 8;
    const uint32_t which = op.c % 6;
    const bool makes = which == 1 || which == 4;
    if (which != 3 && makes == (other != nullptr)) return static_cast<void>(--result_.operations);
    if (&second == &slot || !Fits(*branch, count)) return;
    const Added first = MakeAdded(*branch, count, 0, kAppendSampler);
    std::optional<Added> added;
    StatusCode code = IsFull(*branch) ? StatusCode::kNoSpace : StatusCode::kOk;
    WriteBatch batch;
    ModelBranch made;
    const std::string name = Name(op.d);
    switch (which) {
      case 0:
        if (!Fits(*other, count)) return;
        batch.Append(Handle(slot), first.delta(), branch->length());
        added = MakeAdded(*other, count, 2, 0);
        batch.Append(Handle(second), added->delta());
        if (IsFull(*other)) code = StatusCode::kNoSpace;
        break;
      case 1:
        made.kv_lengths.resize(kGroups);
        made.model = branch->model;
        added = MakeAdded(made, count, 0, 0);
        batch.Append(Handle(slot), first.delta());
        batch.Append(batch.Create(model_ids_[made.model], {.name = name}), added->delta());
        if (model_.HasName("", name)) code = StatusCode::kAlreadyExists;
        break;
      case 2:
        batch.Append(Handle(slot), first.delta());
        batch.Rewind(Handle(second), other->length() - std::min(other->length(), count));
        if (!other->MayCut(other->length() - std::min(other->length(), count))) {
          code = StatusCode::kInvalidArgument;
        }
        break;
      case 3:
        batch.Append(Handle(slot), first.delta());
        batch.Drop(Branch(store_.core(), BranchId{999'999'999}));
        code = StatusCode::kNotFound;
        break;
      case 4:
        batch.Fork(Handle(slot), branch->length() / 2, {.name = "", .ns = branch->ns});
        batch.Append(Handle(slot), first.delta());
        if (!branch->MayCut(branch->length() / 2)) code = StatusCode::kInvalidArgument;
        break;
      default:
        batch.Append(Handle(slot), first.delta());
        batch.Drop(Handle(second));
        batch.Rename(Handle(slot), name);
        if (name != branch->name && model_.HasName(branch->ns, name) &&
            !(other->ns == branch->ns && other->name == name)) {
          code = StatusCode::kAlreadyExists;
        }
    }
    const AppendOptions options{.durability = Level()};
    auto written = store_.Write(batch, options);
    while (written.status().code() == StatusCode::kBusy) {  // Write never waits.
      Pause();
      written = store_.Write(batch, options);
    }
    Expect(code, written, "Write");
    if (code != StatusCode::kOk) return;
    if (which == 4) {
      second = {next_id_++, written->created.at(0).id()};
      model_.Fork(slot.id, branch->length() / 2, second.id, "", branch->ns);
    }
    AddToModel(slot.id, first, false);
    if (which == 0) AddToModel(second.id, *added, false);
    if (which == 1) {
      second = {next_id_++, written->created.at(0).id()};
      model_.Create(second.id, name, "", {}, made.model);
      AddToModel(second.id, *added, false);
    }
    if (which == 2) {
      RewindModel(second.id, other->length() - std::min(other->length(), count));
      MarkUntrimmed();
    }
    if (which == 5) {
      DropFromModel(second.id);
      MarkUntrimmed();
      branch->name = name;
    }
    if (which == 2 || which == 4) Adopt(second);
    compare_.Info(store_, slot.id, slot.branch);
  }

  // A fork or rewind keeps KV as far as it lies on the nodes that are shared. Where nodes were
  // joined or trimmed these are others. Whatever it kept, from here on it has all that it may have.
  void Adopt(const Slot& slot) {
    ModelBranch& branch = model_.branches().at(slot.id);
    auto info = Handle(slot).Info();
    MustBeOk(info, "Info");
    const std::vector<uint64_t> most = branch.kv_lengths;
    const std::vector<uint64_t> floors = branch.kv_floors;
    const ModelSpec& spec = specs_[branch.model];
    std::vector<RowRange> lacking(spec.groups.size());
    bool lacks = false;
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      const uint64_t got = info->kv_lengths.at(group);
      Holds(got <= most[group], "KV that nobody gave");
      if (!HasOtherNodes()) Same(floors[group], got, "kv_length after a cut");
      lacking[group] = {got, most[group] - got};
      lacks |= got < most[group];
    }
    std::vector<std::vector<uint64_t>> seeds(spec.groups.size());
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      for (uint64_t at = floors[group]; at < most[group]; ++at) {
        seeds[group].push_back(*branch.positions[at].kv[group]);
      }
    }
    if (lacks) FillAgain(slot, branch, lacking, "Fill after a cut");
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      branch.CutKv(group, floors[group]);
    }
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      for (size_t i = 0; i < seeds[group].size(); ++i) {
        model_.AddKv(slot.id, group, floors[group] + i, 1, seeds[group][i]);
      }
    }
    compare_.Info(store_, slot.id, slot.branch);
  }
  // Its nodes may be others than the model's: it joined some, or may have trimmed some.
  bool HasOtherNodes() const {
    return untrimmed_ || result_.joined + store_.Metrics().joined_nodes > 0;
  }
  void MarkUntrimmed() {
    const ReferenceModel::Reached reached = model_.Reach(specs_);
    untrimmed_ |= reached.tokens != reached.tokens_on_nodes;
  }

  void Fork(const ScriptOp& op, const Slot& slot, ModelBranch* branch) {
    Slot& made = slots_[op.d % 32 % kSlots];
    if (Find(made) != nullptr) return static_cast<void>(--result_.operations);
    const uint64_t position = op.b >= 1000 ? branch->length() : op.b % (branch->length() + 2);
    std::string ns = op.d / 32 == 0 ? branch->ns : kNamespaces[(op.d / 32 - 1) % 4];
    if (ns == "q" || branch->ns == "q") ns = branch->ns;
    const std::string name = Name(op.c);
    auto forked =
        Handle(slot).ForkAt(position, {.name = name, .ns = ns, .keep = {}, .durability = Level()});
    const StatusCode code = model_.HasName(ns, name)   ? StatusCode::kAlreadyExists
                            : branch->MayCut(position) ? StatusCode::kOk
                                                       : StatusCode::kInvalidArgument;
    Expect(code, forked, "ForkAt");
    if (code != StatusCode::kOk) return;
    const uint64_t source = slot.id;  // `made` may be the slot itself, if that is free; it is not.
    made = {next_id_++, forked->id()};
    model_.Fork(source, position, made.id, name, ns);
    Adopt(made);
  }

  void Rewind(const ScriptOp& op, const Slot& slot, ModelBranch* branch) {
    const uint64_t length = branch->length();
    const uint64_t to = op.c != 0 ? op.b % (length + 2) : length - std::min<uint64_t>(length, op.b);
    const Status status = Handle(slot).Rewind(to, Level());
    const bool may = branch->MayCut(to);
    Expect(may ? StatusCode::kOk : StatusCode::kInvalidArgument, status, "Rewind");
    if (!may) return;
    RewindModel(slot.id, to);
    MarkUntrimmed();
    Adopt(slot);
  }

  void Drop(const Slot& slot) {
    Expect(StatusCode::kOk, Handle(slot).Drop(Level()), "Drop");
    DropFromModel(slot.id);
    MarkUntrimmed();
  }

  void Rename(const ScriptOp& op, const Slot& slot, ModelBranch* branch) {
    const std::string name = Name(op.b);
    const bool taken = name != branch->name && model_.HasName(branch->ns, name);
    Expect(taken ? StatusCode::kAlreadyExists : StatusCode::kOk, Handle(slot).Rename(name, Level()),
           "Rename");
    if (!taken) branch->name = name;
  }

  // Fills with the model's KV: a Fill for each group and each run that is all exact or not at all.
  void FillAgain(const Slot& slot, const ModelBranch& branch, const std::vector<RowRange>& ranges,
                 const char* what) {
    const auto exact = [&](size_t group, uint64_t at) {
      return IsExact(*branch.positions[at].kv[group]);
    };
    for (size_t group = 0; group < ranges.size(); ++group) {
      const uint64_t end = ranges[group].begin + ranges[group].count;
      for (uint64_t at = ranges[group].begin; at < end;) {
        std::vector<RowRange> run(ranges.size());
        run[group].begin = at;
        while (++at < end && exact(group, at) == exact(group, run[group].begin)) {
        }
        run[group].count = at - run[group].begin;
        const KvRows rows = compare_.RowsOf(branch, run);
        MustBeOk(Handle(slot).Fill(*rows.view(), {.durability = Level(),
                                                  .exact = exact(group, run[group].begin)}),
                 what);
      }
    }
  }

  // KV that lags, up to `op.b` positions before the end.
  void Fill(const ScriptOp& op, const Slot& slot, ModelBranch* branch) {
    const ModelSpec& spec = specs_[branch->model];
    const uint64_t end = branch->length() - std::min<uint64_t>(branch->length(), op.b);
    Added added;
    bool any = false;
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      const uint64_t begin = branch->kv_length(group);
      added.rows.push_back({begin, std::max(begin, end) - begin});
      added.AddSeed(Number());
      any |= begin < end;
    }
    added.kv = RowsOf(spec, added);
    const Status status = Handle(slot).Fill(any ? *added.kv->view() : KvView(),
                                            {.durability = Level(), .exact = added.exact()});
    Expect(any ? StatusCode::kOk : StatusCode::kInvalidArgument, status, "Fill");
    if (any) AddKvToModel(slot.id, added);
  }

  void Refill(const Slot& slot, const ModelBranch* branch) {
    const ModelSpec& spec = specs_[branch->model];
    std::vector<RowRange> ranges(spec.groups.size());
    bool any = false;
    for (size_t group = 0; group < spec.groups.size(); ++group) {
      ranges[group] = {0, branch->kv_length(group)};
      any |= ranges[group].count != 0;
    }
    if (!any) return static_cast<void>(--result_.operations);
    FillAgain(slot, *branch, ranges, "Fill of all");
  }

  void SetKeep(const ScriptOp& op, const Slot& slot, ModelBranch* branch) {
    Keep keep{.pinned = op.b != 0, .priority = static_cast<uint8_t>(op.c), .ttl_ns = 0};
    size_t pinned = 0;
    for (const auto& [id, one] : model_.branches()) {
      pinned += one.keep.pinned && id != slot.id ? 1 : 0;
    }
    keep.pinned &= pinned < kPinnedMax;
    Expect(StatusCode::kOk, Handle(slot).SetKeep(keep, Level()), "SetKeep");
    model_.SetKeep(slot.id, keep);
    Same(branch->keep.pinned, keep.pinned, "pinned");
  }

  void Policy(uint32_t which) {
    const std::string ns = which < 2 ? "q" : "p";
    NamespacePolicy policy;
    if (which == 1) policy.max_bytes = 1;
    if (which == 3) policy.persist = Persist::kTokensOnly;
    if (which == 4) policy.persist = Persist::kTurnEnd;
    Expect(StatusCode::kOk, store_.SetNamespace(ns, policy, Level()), "SetNamespace");
    model_.SetPolicy(ns, policy);
  }

  // Calls that must fail, and leave no trace.
  void Wrong(const ScriptOp& op, const Slot& slot, const ModelBranch* branch) {
    Branch handle = Handle(slot);
    const uint64_t length = branch->length();
    const std::vector<TokenId> one{1};
    const ModelSpec& spec = specs_[branch->model];
    const StatusCode bad = StatusCode::kInvalidArgument;
    switch (op.b % 12) {
      case 0: return Expect(bad, handle.AppendSync({}), "an append of nothing");
      case 1:
        return Expect(StatusCode::kConflict,
                      handle.AppendSync({.tokens = one}, {.expected_length = length + 1}),
                      "another expected_length");
      case 2: return Expect(bad, handle.Rewind(length + 1), "a rewind beyond the end");
      case 3: return Expect(bad, handle.ForkAt(length + 1, {}), "a fork beyond the end");
      case 4: return Expect(bad, handle.Rename(std::string(257, 'x')), "a name of 257 bytes");
      case 5: return Expect(StatusCode::kNotFound, store_.FindBranch("nobody"), "FindBranch");
      case 6:
        return Expect(StatusCode::kNotFound, store_.GetBranch(BranchId{999'999'999}), "GetBranch");
      case 7: {
        const std::vector<ContentSpan> spans{{.begin = length, .end = length + 2}};
        return Expect(bad, handle.AppendSync({.tokens = one, .spans = spans}),
                      "a span beyond the tokens");
      }
      case 8: {
        if (spec.groups.empty() || !KeepsAll(*branch)) break;
        // Beyond the kv_length.
        KvRows rows(spec, std::vector<RowRange>(spec.groups.size(), {length + 1, 1}));
        return Expect(bad, handle.AppendSync({.tokens = one, .kv = rows.view()}),
                      "KV that does not go on");
      }
      case 9:
        return Expect(StatusCode::kNotFound, store_.CreateBranch(ModelId{999'999'999}, {}),
                      "a branch of no model");
      case 10: return Expect(bad, store_.ListBranches("", "", 0), "a page of nothing");
      default: return Expect(bad, store_.Write({}), "an empty batch");
    }
    --result_.operations;
  }
  bool KeepsAll(const ModelBranch& branch) const {
    return model_.Policy(branch.ns).persist == Persist::kAlways;
  }

  void Read(const ScriptOp& op, const Slot& slot, const ModelBranch* branch) {
    const uint64_t length = branch->length();
    const uint64_t begin = op.b % (length + 1);
    const uint64_t end = op.c >= 1000 ? length : begin + op.c % (length - begin + 1);
    compare_.Info(store_, slot.id, slot.branch);
    compare_.Content(store_, slot.id, slot.branch, begin, end);
  }

  // ---------------------------------------------------------------- liveness

  void Verify(VerifyLevel level) {
    auto verified = store_.Verify(level);
    MustBeOk(verified, "Verify");
    if (verified->damages.empty()) return;
    Fail("damage: " + verified->damages[0].where + ": " + verified->damages[0].what);
  }

  void Compact() {
    MustBeOk(store_.Compact(), "Compact");
    compare_.Liveness(store_, HasOtherNodes());
  }

  void End() {
    MustBeOk(store_.Flush(), "Flush");
    CompareAll(store_);
    CompareSpace(/*opened=*/false);
    CompareAll(store_);
    Verify(VerifyLevel::kAll);
    Reopen();
    CompareSpace(/*opened=*/true);
    compare_.Liveness(store_, HasOtherNodes());
    for (const Slot& slot : slots_) {
      if (Find(slot) != nullptr) Drop(slot);
    }
    CompareSpace(/*opened=*/false);
    Same(uint64_t{0}, store_.Metrics().missing_kv_bytes, "evicted bytes of an empty store");
    Close();
  }

  // All that is needed is in tables, and no other file exists. For the index that holds after an
  // opening, or another Compact: some of it may have been read when it was merged.
  void CompareSpace(bool opened) {
    if (!opened) Compact();
    const StoreMetrics got = store_.Metrics();
    if (model_.branches().empty()) Same(uint64_t{0}, got.tables, "tables of an empty store");
    auto namespaces = store_.Namespaces();
    MustBeOk(namespaces, "Namespaces");
    uint64_t bytes = 0;
    for (const NamespaceInfo& info : *namespaces) bytes += info.bytes;
    // States count for nobody.
    Holds(bytes <= got.table_live_bytes, "namespaces hold more than tables do");
    if (!opened) Compact();
    // The background may be at work unasked, in idle time: then something exists twice. Looked at
    // once after each wait: it may begin again right after a look that found it quiet.
    bool quiet = OnlyNeededFilesAreThere();
    for (int tries = 0; tries < kQuietTries && !quiet; ++tries) {
      World()->scheduler->Sleep(kQuietNs);
      Compact();
      quiet = OnlyNeededFilesAreThere();
    }
    Holds(quiet, "files of tables are missing, or nothing needs them");
  }

  bool OnlyNeededFilesAreThere() {
    auto files = World()->files->List(io::JoinPath(path_, "tables"));
    MustBeOk(files, "List");
    auto verified = store_.Verify(VerifyLevel::kHeaders);
    MustBeOk(verified, "Verify");
    const uint64_t needed = verified->tables + verified->index_tables;
    // The background may have written one since.
    return machine_ ? needed == files->size() : needed <= files->size();
  }

  const OptionSet& set_;
  const std::vector<ModelSpec> specs_;
  std::mt19937_64 random_;
  std::optional<io::SimWorld> machine_;
  std::unique_ptr<TestWorld> other_;
  std::string path_;
  Store store_;
  std::vector<ModelId> model_ids_;
  std::array<Slot, kSlots> slots_;
  uint64_t next_id_ = 1, copies_ = 0;
  ReferenceModel model_;
  bool untrimmed_ = false;  // Something was left beyond all that reach a node.
  Comparison compare_;
  Prefixes prefixes_;
  RunResult result_;
};

}  // namespace

RunResult RunScript(const Script& script, const OptionSet& options, uint64_t seed) {
  return Runner(options, seed).Run(script);
}

std::string FailureInChild(const std::function<std::string()>& run) {
  int ends[2];
  CAIRN_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  CAIRN_CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    alarm(kChildSeconds);
    const std::string failure = run();
    const ssize_t written = write(ends[1], failure.data(), failure.size());
    _exit(written == static_cast<ssize_t>(failure.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string failure;
  char some[4096];
  for (ssize_t count; (count = read(ends[0], some, sizeof(some))) > 0;) {
    failure.append(some, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  CAIRN_CHECK(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) return std::string("it ended with ") + strsignal(WTERMSIG(status));
  if (failure.empty() && WEXITSTATUS(status) != 0) return "it ended early";
  return failure;
}

std::string FailureOf(const Script& script, const OptionSet& options, uint64_t seed) {
  return FailureInChild([&] { return RunScript(script, options, seed).failure; });
}

}  // namespace cairn::testing
