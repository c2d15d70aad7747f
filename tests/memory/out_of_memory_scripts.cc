// SPDX-License-Identifier: Apache-2.0
//
// What is done to a store without memory: a script for each kind of call.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "cairn/kv_buffer.h"
#include "cairn/objects.h"
#include "cairn/store.h"
#include "engine/store/store_core.h"
#include "tests/memory/out_of_memory_session.h"

namespace cairn::memory {

namespace {

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

}  // namespace

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
    s.Append("chat", 300, Durability::kPower);
    s.Append("other", 5000, Durability::kPower);  // In parts.
  });
  add("large appends in the background", [](Session& s) {
    for (const uint64_t count : {300, 5000}) {  // A record; parts.
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
    s.Do("Rewind", [&] { return chat.Rewind(11); }, [](Contents& c) { c["chat"].resize(11); });
    s.Do(
        "Rename", [&] { return other.Rename("else"); },
        [](Contents& c) {
          c["else"] = c["other"];
          c.erase("other");
        });
    s.Do("Drop", [&] { return chat.Drop(); }, [](Contents& c) { c.erase("chat"); });
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
      s.Do("Rewind", [&] { return branch.Rewind(3); }, [&](Contents& c) { c[name].resize(3); });
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
  // A plan holds nothing of what it needed, whether it is made or not.
  add(
      "blend",
      [](Session& s) {
        s.Append("chat", 60, Durability::kPower);
        std::vector<TokenId> ids = {1, 2, 3};
        const std::vector<TokenId> chat = s.contents().at("chat");
        ids.insert(ids.end(), chat.begin(), chat.end());
        PrefixQuery query;
        query.model = s.model_id();
        query.tokens = ids;
        query.lease_ns = 1'000'000'000;
        BlendOptions options;
        options.min_tokens = kMinBlendTokens;
        options.position_correction = false;
        s.Do("SetNamespace", [&] { return s.store().SetNamespace("", {.index = Index::kChunks}); });
        BlendPlan plan;
        s.Do("PlanBlend", [&] {
          auto made = s.store().PlanBlend(query, options);
          if (made.ok()) plan = std::move(*made);
          // The namespace was not told where there was no memory.
          return made.status().code() == StatusCode::kInvalidState ? Status() : made.status();
        });
        if (plan.tokens != 0) {
          const KvBuffer room(s.model(), plan.tokens);
          s.Do("Restore of a plan",
               [&] { return s.store().Restore(plan, {.into = room.view()}).status(); });
          s.Do("Release", [&] { return s.store().Release(plan.lease); });
        }
        const ComposeRequest request{.model = s.model_id(), .documents = {{.name = "chat"}}};
        s.Do("Compose", [&] { return s.store().Compose(request, options).status(); });
        s.After([&s] {
          return s.store().Metrics().leases == 0
                     ? Status()
                     : Status(StatusCode::kInvalidState, "a lease is left");
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

}  // namespace cairn::memory
