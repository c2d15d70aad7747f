// SPDX-License-Identifier: Apache-2.0
#include "tests/memory/out_of_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "cairn/objects.h"
#include "cairn/store.h"
#include "engine/store/store_core.h"
#include "sim/world.h"
#include "tests/memory/failing_new.h"
#include "tests/memory/whole_world.h"
#include "tests/support/kv_pool.h"
#include "tests/support/test_store.h"

namespace cairn::memory {

namespace {

using testing::KvSet;
using testing::Layout;

constexpr char kPath[] = "/store";
constexpr uint64_t kSeed = 7;  // Generates all KV.

// Tokens by branch; KV follows from the position.
using Contents = std::map<std::string, std::vector<TokenId>>;

using Tune = std::function<void(Options*)>;

Options OomOptions(const io::World& world) {
  Options options = testing::TinyOptions();
  options.allocator = NewAllocator();
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 256 << 10;
  options.executor_threads = 1;
  options.direct_ingest_bytes = 32 << 10;
  options.submit_copy_max_bytes = 8 << 10;
  options.world = std::make_shared<const io::World>(world);
  return options;
}

struct Outcome {
  uint64_t allocations = 0, failed = 0, calls_failed = 0;
  bool poisoned = false;
  std::string violation;
};

// One store, one script, one plan.
class Session {
 public:
  explicit Session(std::shared_ptr<io::SimDisk> disk, Tune tune = {})
      : world_(MakeWholeWorld(std::move(disk), 1, &escaped_)), tune_(std::move(tune)) {}

  // --- For scripts ---
  using Call = std::function<Status()>;
  // Makes a call whose allocations may fail; `change` is what it does to the contents.
  void Do(const char* what, const Call& call, const std::function<void(Contents&)>& change = {}) {
    Contents after = contents_;
    if (change) change(after);
    DoSteps(what, call, {std::move(after)});
  }
  // The same for a call of several steps, each of which leads to other contents, and may fail.
  void DoSteps(const char* what, const Call& call, const std::vector<Contents>& steps) {
    Status status;
    {
      const FailingScope scope;
      try {
        status = call();
      } catch (const std::bad_alloc&) {
        SetFailing(false);
        return Violation(std::string("bad_alloc left ") + what);
      }
    }
    if (status.ok()) {
      contents_ = steps.back();
      return;
    }
    ++outcome_.calls_failed;
    const StatusCode code = status.code();
    const bool clear = code == StatusCode::kOutOfMemory || code == StatusCode::kBusy ||
                       code == StatusCode::kPoisoned || code == StatusCode::kUnknownOutcome ||
                       code == StatusCode::kIoError || code == StatusCode::kInvalidState ||
                       (evicts_ && code == StatusCode::kNoSpace);
    if (!clear) Violation(std::string(what) + ": " + status.ToString());
    if (!store_.core()) return;
    if (poisoned_ = !store_.poisoned().ok(); poisoned_) return;
    const Contents found = ReadAll(store_);
    if (found != contents_ && std::find(steps.begin(), steps.end(), found) == steps.end()) {
      Violation(std::string(what) + " failed and left something else");
    }
    contents_ = found;
  }
  Store& store() { return store_; }
  const io::World& world() const { return world_; }
  const ModelSpec& model() const { return model_; }
  const Contents& contents() const { return contents_; }
  // Must succeed when there is memory again.
  void After(Call call) { after_ = std::move(call); }
  // Without a failure the script has come to this.
  void MustHave(const char* what, uint64_t StoreMetrics::*count) {
    if (AllocationsFailed() == 0 && store_.Metrics().*count == 0) {
      Violation(std::string("nothing has ") + what);
    }
  }
  // From here on KV may be missing, and room.
  void Evicts() { evicts_ = true; }
  ModelId model_id() const { return model_id_; }
  bool poisoned() const { return poisoned_; }
  Branch Find(const std::string& name) {
    auto branch = store_.FindBranch(name);
    return branch.ok() ? *branch : Branch();
  }
  uint64_t Length(const std::string& name) { return contents_[name].size(); }
  // Tokens, KV and states behind the present end.
  void Append(const std::string& name, uint64_t count, Durability durability) {
    const Material m(*this, name, count);
    Branch branch = Find(name);
    Do(
        "AppendSync",
        [&] { return branch.AppendSync(m.delta, {.durability = durability}).status(); },
        m.Change());
  }
  // The same, with memory for all of it.
  void Grow(const std::string& name, uint64_t count) {
    const Material m(*this, name, count);
    CAIRN_CHECK(Find(name).AppendSync(m.delta).ok());
    m.Change()(contents_);
  }
  struct Material {
    Material(Session& session, const std::string& in_name, uint64_t count)
        : name(in_name),
          begin(session.Length(name)),
          tokens(testing::Tokens(count, begin + 1)),
          kv(session.model_, Layout::kContiguous, begin, count) {
      kv.Write(kSeed, begin, begin + count);
      sampler.generator = GeneratorKind::kPhilox;
      delta.tokens = tokens;
      delta.kv = kv.View(begin, count);
      delta.sampler = &sampler;
    }
    std::function<void(Contents&)> Change() const {
      return [this](Contents& contents) {
        auto& all = contents[name];
        all.insert(all.end(), tokens.begin(), tokens.end());
      };
    }
    const std::string name;
    const uint64_t begin;
    const std::vector<TokenId> tokens;
    KvSet kv;
    SamplerState sampler;
    Delta delta;
  };

  // --- The frame around them ---
  void Begin(const Contents& contents) {
    contents_ = contents;
    auto opened = Store::Open(kPath, MakeOptions());
    CAIRN_CHECK(opened.ok());
    store_ = std::move(*opened);
    model_id_ = *store_.RegisterModel(model_);
  }

  // The same for a store that the script opens.
  void Expect(const Contents& contents) { contents_ = contents; }

  Outcome Run(const std::function<void(Session&)>& script, const FailPlan& plan) {
    SetFailPlan(plan);
    script(*this);
    outcome_.allocations = AllocationsCounted();
    outcome_.failed = AllocationsFailed();
    SetFailPlan({});
    if (after_) {
      if (const Status status = after_(); !status.ok()) Violation("after: " + status.ToString());
    }
    if (!escaped_.empty()) Violation(escaped_);
    if (outcome_.violation.empty()) CheckAfter();
    return outcome_;
  }

  void OpenFresh() {
    auto opened = Store::Open(kPath, MakeOptions());
    if (!opened.ok()) return Violation("open after it: " + opened.status().ToString());
    store_ = std::move(*opened);
  }

  Contents ReadAll(const Store& store) {
    Contents found;
    const auto page = store.ListBranches("", "", SIZE_MAX);
    if (!page.ok()) {
      Violation("ListBranches after it: " + page.status().ToString());
      return found;
    }
    for (const BranchInfo& info : page->branches) {
      const auto branch = store.GetBranch(info.id);
      if (!branch.ok()) {
        Violation("GetBranch after it: " + branch.status().ToString());
        continue;
      }
      std::vector<TokenId>& tokens = found[info.name];
      tokens.resize(info.length);
      KvSet got(model_, Layout::kContiguous, 0, info.length);
      KvSet want(model_, Layout::kContiguous, 0, info.length);
      want.Write(kSeed, 0, info.length);
      RestoreRequest request;
      request.tokens = tokens;
      if (info.length != 0) request.into = got.View(0, info.length);
      auto restored = branch->Restore(request);
      if (evicts_ && restored.status().code() == StatusCode::kEvicted) {
        request.into = nullptr;
        restored = branch->Restore(request);
        if (!restored.ok()) Violation("Restore of tokens: " + restored.status().ToString());
        continue;
      }
      if (!restored.ok()) {
        Violation("Restore after it: " + restored.status().ToString());
      } else if (info.length != 0 && (restored->kv_ends[0] != info.length || !(got == want))) {
        Violation("wrong KV of " + info.name);
      }
    }
    return found;
  }

  void Violation(const std::string& what) {
    if (outcome_.violation.empty()) outcome_.violation = what;
  }

 private:
  Options MakeOptions() const {
    Options options = OomOptions(world_);
    if (tune_) tune_(&options);
    return options;
  }

  void CheckAfter() {
    if (!store_.core() || !store_.poisoned().ok()) {
      // A store that is not open, or that wants to be opened again.
      if (store_.core()) {
        outcome_.poisoned = store_.poisoned().code() == StatusCode::kPoisoned;
        static_cast<void>(store_.Close());
      }
      store_ = Store();
      OpenFresh();
    }
    if (!outcome_.violation.empty()) return;
    if (!poisoned_ && ReadAll(store_) != contents_) Violation("other contents after it");
    contents_ = ReadAll(store_);
    auto made = store_.RegisterModel(model_);
    if (!made.ok()) return Violation("RegisterModel after it: " + made.status().ToString());
    auto after = store_.CreateBranch(*made, {.name = "after"});
    if (!after.ok()) return Violation("CreateBranch after it: " + after.status().ToString());
    contents_["after"] = {};
    for (const auto& [name, tokens] : Contents(contents_)) {
      const uint64_t failed = outcome_.calls_failed;
      Append(name, 2, Durability::kPower);
      if (outcome_.calls_failed != failed) return Violation("an append after it fails");
    }
    if (const Status status = store_.Compact(); !status.ok()) {
      return Violation("Compact after it: " + status.ToString());
    }
    if (const Status status = store_.Close(); !status.ok()) {
      return Violation("Close after it: " + status.ToString());
    }
    store_ = Store();
    OpenFresh();
    if (!outcome_.violation.empty()) return;
    if (ReadAll(store_) != contents_) Violation("other contents after opening again");
    const auto report = store_.Verify(VerifyLevel::kAll);
    if (!report.ok()) return Violation("Verify: " + report.status().ToString());
    if (!report->damages.empty()) {
      return Violation("Verify: " + report->damages[0].where + ": " + report->damages[0].what);
    }
    if (const Status status = store_.Close(); !status.ok()) Violation(status.ToString());
    if (!escaped_.empty()) Violation(escaped_);
  }

  std::string escaped_;
  const io::World world_;
  const Tune tune_;
  const ModelSpec model_ = testing::TinyModel();
  ModelId model_id_{};
  Contents contents_;
  Outcome outcome_;
  Call after_;
  bool poisoned_ = false, evicts_ = false;
  Store store_;  // Goes before its world.
};

struct Script {
  std::string name;
  bool opened = true;  // The store is open when it begins.
  std::function<void(Session&)> run;
  Tune tune;
};

// Calls about two objects, each of which is one letter again and again. They outlive their script.
struct ObjectCalls {
  ObjectCalls(const Store& store, size_t bytes)
      : space(store), a(bytes, std::byte{'a'}), b(bytes + 100, std::byte{'b'}), into(bytes + 100) {}

  Status Register() {
    CAIRN_ASSIGN_OR_RETURN(id, space.RegisterClass({.name = "pages", .page_bytes = 512}));
    return Status::Ok();
  }
  Status Put(bool waits) {
    const ObjectPut puts[] = {{.key = "a", .value = a}, {.key = "b", .value = b}};
    const PutOptions options{
        .object_class = id, .if_present = IfPresent::kReplace, .durability = Durability::kPower};
    Status first;
    if (waits) {
      CAIRN_ASSIGN_OR_RETURN(const auto results, space.PutBatch(puts, options));
      for (const PutResult& result : results) first = first.ok() ? result.status : first;
      return first;
    }
    CAIRN_ASSIGN_OR_RETURN(auto tickets, space.PutBatchAsync(puts, options));
    for (Ticket& ticket : tickets) {
      const Status status = ticket.Wait();
      first = first.ok() ? status : first;
    }
    return first;
  }
  // One that exists is whole; `all`: each exists.
  Status Look(bool all) {
    for (const std::vector<std::byte>* value : {&a, &b}) {
      const char key = static_cast<char>((*value)[0]);
      const ObjectGet get{.key = {&key, 1}, .into = into};
      CAIRN_ASSIGN_OR_RETURN(const auto results, space.GetBatch({&get, 1}));
      const GetResult& result = results[0];
      if (!all && result.status.code() == StatusCode::kNotFound) continue;
      CAIRN_RETURN_IF_ERROR(result.status);
      if (result.bytes != value->size() || !std::equal(value->begin(), value->end(), into.begin()))
        return Status(StatusCode::kCorruption, "an object holds something else");
    }
    const std::string_view keys[] = {"a", "b"};
    CAIRN_ASSIGN_OR_RETURN(const ObjectsFound found, space.Exists(keys));
    if (found.count == 2 || !all) return Status::Ok();
    return Status(StatusCode::kCorruption, "Exists does not know what is there");
  }

  Objects space;
  ObjectClassId id{};
  std::vector<std::byte> a, b, into;
};

void RunObjects(Session& s, size_t bytes) {
  const auto calls = std::make_shared<ObjectCalls>(s.store(), bytes);
  s.Do("RegisterClass", [&] { return calls->Register(); });
  if (calls->id == ObjectClassId{}) return;
  s.Do("PutBatch", [&] { return calls->Put(true); });
  s.Do("what reads", [&] { return calls->Look(false); });
  s.Do("PutBatchAsync", [&] { return calls->Put(false); });
  s.Do("List", [&] { return calls->space.List("", 10).status(); });
  s.Do("Delete", [&]() -> Status {
    const std::string_view key = "a";
    CAIRN_ASSIGN_OR_RETURN(const auto outcomes, calls->space.Delete({&key, 1}));
    return outcomes[0].code() == StatusCode::kNotFound ? Status::Ok() : outcomes[0];
  });
  s.After([&s, calls]() -> Status {
    CAIRN_RETURN_IF_ERROR(calls->Look(false));
    if (s.poisoned()) return Status::Ok();
    CAIRN_RETURN_IF_ERROR(calls->Put(true));
    return calls->Look(true);
  });
}

std::vector<Script> Scripts() {
  std::vector<Script> scripts;
  const auto add = [&](const char* name, std::function<void(Session&)> run, bool opened = true,
                       Tune tune = {}) {
    scripts.push_back({name, opened, std::move(run), std::move(tune)});
  };
  add(
      "open",
      [](Session& s) {
        const Options options = OomOptions(s.world());
        s.Do("Open", [&] {
          auto opened = Store::Open(kPath, options);
          if (opened.ok()) s.store() = std::move(*opened);
          return opened.status();
        });
      },
      false);
  // One that was half brought in ended the process that listed it.
  add(
      "branches from the index",
      [](Session& s) {
        Options options = OomOptions(s.world());
        options.tree_memory_bytes = 0;
        const auto open = [&] {
          auto opened = Store::Open(kPath, options);
          if (opened.ok()) s.store() = std::move(*opened);
          return opened.status();
        };
        s.Do("Open", open);
        if (!s.store().core()) return;
        s.Do("Close", [&] { return std::exchange(s.store(), Store()).Close(); });
        s.Do("Open", open);
        if (!s.store().core()) return;
        for (const char* const name : {"chat", "other"}) {
          s.Do("FindBranch", [&] { return s.store().FindBranch(name).status(); });
        }
        s.Do("ListBranches", [&] { return s.store().ListBranches("", "", 10).status(); });
      },
      false);
  add("append", [](Session& s) {
    s.Append("chat", 3, Durability::kPower);
    s.Append("other", 1, Durability::kProcess);
    s.Append("chat", 40, Durability::kMemory);
    s.Do("Flush", [&] { return s.store().Flush(); });
  });
  add("asynchronous", [](Session& s) {
    const Session::Material m(s, "chat", 9);
    Branch branch = s.Find("chat");
    s.Do(
        "Append",
        [&]() -> Status {
          CAIRN_ASSIGN_OR_RETURN(Ticket ticket, branch.Append(m.delta));
          return ticket.Wait();
        },
        m.Change());
  });
  add("large append", [](Session& s) {
    s.Append("chat", 300, Durability::kPower);   // In parts.
    s.Append("other", 700, Durability::kPower);  // Ingested.
  });
  add("large appends in the background", [](Session& s) {
    for (const uint64_t count : {300, 700}) {  // In parts; ingested.
      const Session::Material m(s, "chat", count);
      Branch branch = s.Find("chat");
      s.Do(
          "a large append",
          [&]() -> Status {
            CAIRN_ASSIGN_OR_RETURN(Ticket ticket,
                                   branch.Append(m.delta, {.durability = Durability::kPower}));
            return ticket.Wait();
          },
          m.Change());
    }
  });
  add(
      "large restore",
      [](Session& s) {
        s.Grow("chat", 12'000);  // So much that others help.
        Branch branch = s.Find("chat");
        const uint64_t length = s.Length("chat");
        KvSet got(s.model(), Layout::kContiguous, 0, length);
        RestoreRequest request;
        request.into = got.View(0, length);
        s.Do("Restore", [&] { return branch.Restore(request).status(); });
      },
      true, [](Options* options) { options->executor_threads = 3; });
  add("restore", [](Session& s) {
    Branch branch = s.Find("chat");
    const uint64_t length = s.Length("chat");
    KvSet got(s.model(), Layout::kContiguous, 0, length);
    std::vector<TokenId> tokens(length);
    RestoreRequest request;
    request.tokens = tokens;
    request.into = got.View(0, length);
    s.Do("Restore", [&] { return branch.Restore(request).status(); });
    s.Do("ReadTokens", [&] { return branch.ReadTokens(0, length).status(); });
    s.Do("SamplerAt", [&] { return branch.SamplerAt(length).status(); });
    s.Do("Path", [&] { return branch.Path().status(); });
    s.Do("Info", [&] { return branch.Info().status(); });
    s.Do("Verify", [&] { return s.store().Verify(VerifyLevel::kAll).status(); });
  });
  add("restore in the background", [](Session& s) {
    Branch branch = s.Find("chat");
    const uint64_t length = s.Length("chat");
    KvSet got(s.model(), Layout::kContiguous, 0, length);
    KvSet want(s.model(), Layout::kContiguous, 0, length);
    want.Write(kSeed, 0, length);
    RestoreRequest request;
    request.into = got.View(0, length);
    s.Do("Prefetch", [&] { return branch.Prefetch(); });
    s.Do("RestoreAsync", [&]() -> Status {
      CAIRN_ASSIGN_OR_RETURN(Ticket ticket, branch.RestoreAsync(request));
      CAIRN_RETURN_IF_ERROR(ticket.Wait());
      if (!(got == want)) s.Violation("RestoreAsync brought something else");
      return Status::Ok();
    });
  });
  add("changes", [](Session& s) {
    Branch chat = s.Find("chat"), other = s.Find("other");
    s.Do(
        "ForkAt", [&] { return chat.ForkAt(20, {.name = "fork"}).status(); },
        [](Contents& c) {
          c["fork"] = c["chat"];
          c["fork"].resize(20);
        });
    s.Do(
        "Rewind", [&] { return chat.Rewind(11); }, [](Contents& c) { c["chat"].resize(11); });
    s.Do(
        "Rename", [&] { return other.Rename("else"); },
        [](Contents& c) {
          c["else"] = c["other"];
          c.erase("other");
        });
    s.Do(
        "Drop", [&] { return chat.Drop(); }, [](Contents& c) { c.erase("chat"); });
  });
  add("batch", [](Session& s) {
    const Session::Material m(s, "chat", 2);
    Branch chat = s.Find("chat");
    WriteBatch batch;
    batch.Append(chat, m.delta);
    batch.Create(s.model_id(), {.name = "made"});
    s.Do(
        "Write",
        [&]() -> Status {
          CAIRN_ASSIGN_OR_RETURN(Store::WriteResult result, s.store().Write(batch));
          return result.ticket.Wait();
        },
        [&](Contents& c) {
          m.Change()(c);
          c["made"] = {};
        });
  });
  add("draft", [](Session& s) {
    Session::Material m(s, "chat", 3);
    Branch branch = s.Find("chat");
    std::vector<GroupView> layers;
    for (uint32_t layer = 0; layer < s.model().groups[0].layers; ++layer) {
      layers.push_back(m.kv.pool(0).View(m.begin, 3, layer, 1));
    }
    s.Do(
        "a draft",
        [&]() -> Status {
          CAIRN_ASSIGN_OR_RETURN(Draft draft, branch.BeginAppend(3));
          for (uint32_t layer = 0; layer < layers.size(); ++layer) {
            CAIRN_RETURN_IF_ERROR(draft.Put(layer, layers[layer]));
          }
          CAIRN_ASSIGN_OR_RETURN(Ticket ticket, draft.Commit({.tokens = m.tokens}, {}));
          return ticket.Wait();
        },
        m.Change());
  });
  add(
      "coalesced appends",
      [](Session& s) {
        Session::Material m(s, "chat", 6);
        Branch branch = s.Find("chat");
        std::vector<const KvView*> kv;
        for (size_t i = 0; i < m.tokens.size(); ++i) kv.push_back(m.kv.View(m.begin + i, 1));
        std::vector<Ticket> tickets;
        tickets.reserve(m.tokens.size());
        std::vector<Contents> steps;
        for (size_t count = 1; count <= m.tokens.size(); ++count) {
          steps.push_back(s.contents());
          auto& all = steps.back()["chat"];
          all.insert(all.end(), m.tokens.begin(), m.tokens.begin() + static_cast<int>(count));
        }
        s.DoSteps(
            "coalesced appends",
            [&]() -> Status {
              Status first;
              for (size_t i = 0; i < m.tokens.size() && first.ok(); ++i) {
                const auto ticket =
                    branch.Append({.tokens = std::span(m.tokens).subspan(i, 1), .kv = kv[i]});
                if (ticket.ok()) tickets.push_back(*ticket);
                first = ticket.status();
              }
              for (Ticket& ticket : tickets) {
                const Status status = ticket.Wait();
                if (first.ok()) first = status;
              }
              return first;
            },
            steps);
      },
      true, [](Options* options) { options->delta_batch_tokens = 4; });
  add("queue", [](Session& s) {
    const Session::Material m(s, "other", 4);
    Branch branch = s.Find("other");
    s.Do(
        "an append with a queue",
        [&]() -> Status {
          CAIRN_ASSIGN_OR_RETURN(CompletionQueue queue, s.store().NewCompletionQueue());
          CAIRN_ASSIGN_OR_RETURN(Ticket ticket, branch.Append(m.delta, {.queue = &queue}));
          if (!queue.Wait()) return Status(StatusCode::kCorruption, "nothing came");
          std::vector<Completion> came = queue.Drain();
          if (came.empty()) {
            SetFailing(false);  // Completions without memory stay.
            came = queue.Drain();
          }
          return came.size() == 1 ? came[0].status : Status(StatusCode::kCorruption, "not one");
        },
        m.Change());
  });
  add("eviction and Fill", [](Session& s) {
    s.Evicts();
    s.Do("SetNamespace",
         [&] { return s.store().SetNamespace("", {.max_bytes = 6'000, .evict = Evict::kKv}); });
    s.Append("other", 30, Durability::kPower);
    s.Do("SetNamespace", [&] { return s.store().SetNamespace("", {}); });
    Branch branch = s.Find("chat");
    s.Do("EvictedKv", [&] { return branch.EvictedKv().status(); });
    const uint64_t length = s.Length("chat");
    KvSet all(s.model(), Layout::kContiguous, 0, length);
    all.Write(kSeed, 0, length);
    const KvView& whole = *all.View(0, length);
    s.Do("Fill", [&] { return branch.Fill(whole); });
  });
  add("policies", [](Session& s) {
    Branch branch = s.Find("chat");
    const uint64_t day_ns = uint64_t{86'400} * 1'000'000'000;
    s.Do("SetKeep", [&] { return branch.SetKeep({.priority = 2, .ttl_ns = day_ns}); });
    s.Do("SetNamespace of another",
         [&] { return s.store().SetNamespace("tenant", {.ttl_ns = day_ns}); });
    s.Do("Namespaces", [&] { return s.store().Namespaces().status(); });
    s.Do("ListBranches", [&] { return s.store().ListBranches("", "", 10).status(); });
    s.Do("SetKeep", [&] { return branch.SetKeep({.pinned = true}); });
  });
  // The rewind cuts the node itself. One that found no memory once left its branch without the KV
  // behind the cut, and reads gave other bytes.
  add("rewriting tables", [](Session& s) {
    s.Append("other", 60, Durability::kPower);
    s.Do("Compact", [&] { return s.store().Compact(); });
    for (const char* const name : {"chat", "other"}) {
      Branch branch = s.Find(name);
      s.Do(
          "Rewind", [&] { return branch.Rewind(3); }, [&](Contents& c) { c[name].resize(3); });
    }
    s.Do("Compact", [&] { return s.store().Compact(); });
    s.MustHave("rewritten a table", &StoreMetrics::rewritten_tables);
  });
  add("another store", [](Session& s) {
    Options options = OomOptions(s.world());
    options.create_if_missing = true;
    const auto make = [options, &s]() -> Status {
      CAIRN_ASSIGN_OR_RETURN(Store made, Store::Open("/another", options));
      CAIRN_ASSIGN_OR_RETURN(const ModelId model, made.RegisterModel(s.model()));
      const auto branch = made.CreateBranch(model, {.name = "a"});
      if (branch.status().code() != StatusCode::kAlreadyExists) {
        CAIRN_RETURN_IF_ERROR(branch.status());
      }
      return made.Close();
    };
    s.Do("the making of a store", make);
    s.After(make);  // Whatever was left of it can be gone on with.
  });
  add(
      "listener",
      [](Session& s) {
        s.Append("chat", 5, Durability::kPower);
        s.Do("Compact", [&] { return s.store().Compact(); });
      },
      true,
      [](Options* options) {
        options->listener = std::make_shared<EventListener>();
        options->listener->on_event = [](const std::string& line) { CAIRN_CHECK(!line.empty()); };
      });
  add("objects", [](Session& s) { RunObjects(s, 1'500); });
  add("large objects", [](Session& s) { RunObjects(s, 300'000); });
  add("compact", [](Session& s) { s.Do("Compact", [&] { return s.store().Compact(); }); });
  add("checkpoint", [](Session& s) {
    s.Do("Checkpoint", [&] { return s.store().Checkpoint("/copy").status(); });
  });
  add("follower", [](Session& s) {
    Options options = OomOptions(s.world());
    options.create_if_missing = false;
    options.read_only = true;
    Store follower;
    s.Do("Open of a follower", [&] {
      auto opened = Store::Open(kPath, options);
      if (opened.ok()) follower = std::move(*opened);
      return opened.status();
    });
    if (!follower.core()) return;
    s.Append("chat", 2, Durability::kPower);
    s.Do("Refresh", [&] { return follower.Refresh().status(); });
  });
  // Nodes that cannot be indexed stay behind, and the next search does it.
  add(
      "find",
      [](Session& s) {
        s.Append("chat", 60, Durability::kPower);
        std::vector<TokenId> ids = s.contents().at("chat");
        PrefixQuery query;
        query.model = s.model_id();
        query.tokens = ids;
        query.lease_ns = 1'000'000'000;
        PrefixHit hit;
        const auto find = [&] {
          auto found = s.store().FindPrefix(query);
          if (found.ok()) hit = *found;
          return found.status();
        };
        s.Do("FindPrefix", find);
        s.Do("Compact", [&] { return s.store().Compact(); });
        s.Do("FindPrefix behind a flush", find);
        if (hit.found()) {
          s.Do(
              "Fork of a hit",
              [&] { return s.store().Fork(hit, hit.matched, {.name = "fork"}).status(); },
              [&](Contents& after) {
                after["fork"].assign(ids.begin(),
                                     ids.begin() + static_cast<std::ptrdiff_t>(hit.matched));
              });
        }
        s.After([&s] {
          const std::vector<TokenId> chat = s.contents().at("chat");
          PrefixQuery again;
          again.model = s.model_id();
          again.tokens = chat;
          auto found = s.store().FindPrefix(again);
          if (found.ok() && found->complete && found->matched != chat.size() && chat.size() > 64) {
            return Status(StatusCode::kCorruption, "a prefix is not found");
          }
          return found.status();
        });
      },
      true, [](Options* options) { options->index = Index::kPrefix; });
  // The same of chunks, which the namespace is told to index under way.
  add(
      "chunks",
      [](Session& s) {
        s.Append("chat", 60, Durability::kPower);
        const std::vector<TokenId> ids = s.contents().at("chat");
        PrefixQuery query;
        query.model = s.model_id();
        query.tokens = ids;
        s.Do("SetNamespace", [&] { return s.store().SetNamespace("", {.index = Index::kChunks}); });
        const auto find = [&] {
          const auto found = CatchBadAlloc([&] { return s.store().core()->chunks().Find(query); });
          // The namespace was not told where there was no memory.
          return found.status().code() == StatusCode::kInvalidState ? Status() : found.status();
        };
        s.Do("search of chunks", find);
        s.Append("chat", 60, Durability::kPower);
        s.Do("Compact", [&] { return s.store().Compact(); });
        s.Do("search of chunks behind a flush", find);
        s.After([&s] {
          const std::vector<TokenId> chat = s.contents().at("chat");
          PrefixQuery again;
          again.model = s.model_id();
          again.tokens = chat;
          const auto found = s.store().core()->chunks().Find(again);
          if (found.status().code() == StatusCode::kInvalidState) return Status();
          CAIRN_RETURN_IF_ERROR(found.status());
          const bool all = found->matches.size() == 1 && found->matches[0].end == chat.size();
          if (found->complete && !all && chat.size() >= 47) {
            return Status(StatusCode::kCorruption, "a chunk is not found");
          }
          return Status();
        });
      },
      true, [](Options* options) { options->index = Index::kPrefix; });
  add("close", [](Session& s) {
    s.Do("Close", [&] {
      const Status status = s.store().Close();
      s.store() = Store();
      return status;
    });
  });
  return scripts;
}

// A store with tables, an index, and records that are in the log alone.
struct Start {
  std::shared_ptr<io::SimDisk> disk = std::make_shared<io::SimDisk>();
  Contents contents;

  Start() {
    Session session(disk);
    session.Begin({});
    for (const char* name : {"chat", "other"}) {
      CAIRN_CHECK(session.store().CreateBranch(session.model_id(), {.name = name}).ok());
      session.Append(name, 50, Durability::kPower);
    }
    CAIRN_CHECK(session.store().Compact().ok());
    session.Append("chat", 5, Durability::kPower);
    contents = session.contents();
    CAIRN_CHECK(session.store().Close().ok());
  }
};

Outcome RunOnce(const Start& start, const Script& script, const FailPlan& plan) {
  std::shared_ptr<io::SimDisk> disk = start.disk->CrashClone(io::CrashChoice::KeepAll());
  Session session(std::move(disk), script.tune);
  if (script.opened) session.Begin(start.contents);
  if (!script.opened) session.Expect(start.contents);
  return session.Run(script.run, plan);
}

// In a process of its own, so that a crash or a wait without end is seen and survived.
Outcome RunForked(const Start& start, const Script& script, const FailPlan& plan) {
  constexpr unsigned kSecondsMax = 20;
  int ends[2];
  CAIRN_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = fork();
  CAIRN_CHECK(child >= 0);
  if (child == 0) {
    struct sigaction die {};
    die.sa_handler = [](int signal) {
      PrintFirstFailure();
      PrintStack();
      raise(signal);
    };
    die.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (const int signal : {SIGABRT, SIGSEGV, SIGALRM}) sigaction(signal, &die, nullptr);
    const rlimit none{};
    setrlimit(RLIMIT_CORE, &none);
    alarm(kSecondsMax);
    const Outcome outcome = RunOnce(start, script, plan);
    if (!outcome.violation.empty()) PrintFirstFailure();
    const std::string text = std::to_string(outcome.allocations) + " " +
                             std::to_string(outcome.failed) + " " +
                             std::to_string(outcome.calls_failed) + " " +
                             std::to_string(outcome.poisoned) + " " + outcome.violation;
    const bool written =
        write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  CAIRN_CHECK(waitpid(child, &status, 0) == child);
  Outcome outcome;
  if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) {
    outcome.failed = 1;
    outcome.violation = WIFSIGNALED(status)
                            ? std::string("the process died: ") + strsignal(WTERMSIG(status))
                            : "the process ended";
    return outcome;
  }
  unsigned long long allocations = 0, failed = 0, calls = 0, poisoned = 0;
  int at = 0;
  CAIRN_CHECK(std::sscanf(text.c_str(), "%llu %llu %llu %llu %n", &allocations, &failed, &calls,
                          &poisoned, &at) == 4);
  return {allocations, failed, calls, poisoned != 0, text.substr(static_cast<size_t>(at))};
}

}  // namespace

std::string OutOfMemoryResult::ToString() const {
  return std::to_string(runs) + " runs (" + std::to_string(allocations) + " allocations), " +
         std::to_string(calls_failed) + " calls failed, " + std::to_string(poisoned) +
         " stores were poisoned";
}

std::vector<std::string> OutOfMemoryScripts() {
  std::vector<std::string> names;
  for (const Script& script : Scripts()) names.push_back(script.name);
  return names;
}

OutOfMemoryResult RunOutOfMemory(const OutOfMemoryOptions& options) {
  OutOfMemoryResult result;
  const Start start;
  for (const Script& script : Scripts()) {
    if (script.name != options.script) continue;
    for (uint64_t at = 1;; at += options.stride) {
      const Outcome outcome =
          RunForked(start, script, {.at = at, .persistent = options.persistent});
      if (!outcome.violation.empty()) {
        result.violation = "allocation " + std::to_string(at) + ": " + outcome.violation;
        break;
      }
      result.allocations = std::max(result.allocations, outcome.allocations);
      if (outcome.failed == 0) break;
      ++result.runs;
      result.calls_failed += outcome.calls_failed;
      result.poisoned += outcome.poisoned;
    }
  }
  return result;
}

}  // namespace cairn::memory
