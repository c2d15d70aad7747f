// SPDX-License-Identifier: Apache-2.0
//
// The sweeps. The work of each step is proportional to the size; its cost may be, too.
#include <thread>

#include "tools/bench/fixture.h"
#include "tools/bench/sweep.h"

namespace cairn::bench {
namespace {

std::string NameAt(uint64_t i) { return "name-" + std::to_string(i); }

BranchOptions Named(std::string name, std::string ns = "") {
  return {.name = std::move(name), .ns = std::move(ns), .durability = Durability::kMemory};
}

// Calls `step` with 0, 1, ... size - 1.
template <typename Step>
auto Each(uint64_t size, const Step& step) {
  return [size, &step]() -> Status {
    for (uint64_t i = 0; i < size; ++i) CAIRN_RETURN_IF_ERROR(step(i));
    return Status::Ok();
  };
}

Status ListAll(const Store& store, const std::string& ns) {
  std::string cursor;
  do {
    CAIRN_ASSIGN_OR_RETURN(BranchPage page, store.ListBranches(ns, "", 100, cursor));
    cursor = std::move(page.cursor);
  } while (!cursor.empty());
  return Status::Ok();
}

// ---------------------------------------------------------------- ops of a batch

// Five ops, one of each kind: a branch is made, forked, appended to, rewound, and the fork dropped.
// A small size is repeated, so that it can be measured.
Status SweepBatch(SweepBed& bed) {
  const uint64_t repeated = std::max<uint64_t>(1, 1000 / bed.size());
  CAIRN_ASSIGN_OR_RETURN(Branch chat, bed.store().CreateBranch(bed.model(), Named("chat")));
  CAIRN_RETURN_IF_ERROR(bed.Append(chat, 0, 4));
  CAIRN_RETURN_IF_ERROR(bed.store().PauseBackground());  // So that the index gets nothing.
  uint64_t names = 0;
  const Delta delta = bed.DeltaOf(4, 6);
  const auto write = [&](uint64_t) -> Status {
    WriteBatch batch;
    int fork = 0;
    for (uint64_t op = 0; op < bed.size(); ++op) {
      switch (op % 5) {
        case 0: fork = batch.Fork(chat, 4, Named(NameAt(names++))); break;
        case 1: batch.Append(fork, delta); break;
        case 2: batch.Rewind(fork, 5); break;
        case 3: batch.Create(bed.model(), Named(NameAt(names++))); break;
        default: op % 2 == 0 ? batch.Drop(fork) : batch.Rename(fork, NameAt(names++)); break;
      }
    }
    for (;;) {  // A call that does not wait may find the log still growing.
      const Status status = bed.store().Write(batch, AppendAt(Durability::kMemory)).status();
      if (status.code() != StatusCode::kBusy) return status;
      std::this_thread::yield();
    }
  };
  CAIRN_RETURN_IF_ERROR(bed.Work("write", Each(repeated, write), repeated));
  CAIRN_RETURN_IF_ERROR(bed.store().Flush());
  bed.Record("log_bytes", static_cast<double>(bed.store().Metrics().log_bytes_written) /
                              static_cast<double>(repeated));
  const auto replay = [&] { return bed.OpenReader().status(); };
  CAIRN_RETURN_IF_ERROR(bed.Work("replay", replay, repeated));
  return bed.store().ResumeBackground();
}

// ---------------------------------------------------------------- names of a namespace

Status SweepNames(SweepBed& bed) {
  const auto find = [&](uint64_t i) { return bed.store().FindBranch(NameAt(i)).status(); };
  const auto create = [&](uint64_t i) {
    return bed.store().CreateBranch(bed.model(), Named(NameAt(i))).status();
  };
  const auto rename = [&](uint64_t i) -> Status {
    CAIRN_ASSIGN_OR_RETURN(Branch branch, bed.store().FindBranch(NameAt(i)));
    return branch.Rename("re" + NameAt(i), Durability::kMemory);
  };
  const auto drop = [&](uint64_t i) -> Status {
    CAIRN_ASSIGN_OR_RETURN(Branch branch, bed.store().FindBranch("re" + NameAt(i)));
    return branch.Drop(Durability::kMemory);
  };
  const auto list = [&] { return ListAll(bed.store(), ""); };
  CAIRN_RETURN_IF_ERROR(bed.Work("create", Each(bed.size(), create)));
  CAIRN_RETURN_IF_ERROR(bed.Work("find", Each(bed.size(), find)));
  CAIRN_RETURN_IF_ERROR(bed.Work("list", list));
  CAIRN_RETURN_IF_ERROR(bed.CloseAndNoteBytes());
  CAIRN_RETURN_IF_ERROR(bed.Work("open", [&] { return bed.Open(); }));
  CAIRN_RETURN_IF_ERROR(bed.Work("list_cold", list));
  CAIRN_RETURN_IF_ERROR(bed.Work("find_cold", Each(bed.size(), find)));
  CAIRN_RETURN_IF_ERROR(bed.Work("rename", Each(bed.size(), rename)));
  return bed.Work("drop", Each(bed.size(), drop));
}

// ---------------------------------------------------------------- nodes on one path

// Every branch is forked off the end of the one before, which stays.
Status SweepChain(SweepBed& bed) {
  std::vector<Branch> chain(bed.size());
  const auto grow = [&](uint64_t i) -> Status {
    if (i == 0) {
      CAIRN_ASSIGN_OR_RETURN(chain[0], bed.store().CreateBranch(bed.model(), Named("chain")));
    } else {
      CAIRN_ASSIGN_OR_RETURN(chain[i], chain[i - 1].ForkAt(i, UnnamedAt(Durability::kMemory)));
    }
    return bed.Append(chain[i], i, i + 1);
  };
  const auto restore = [&] { return bed.Restore(chain.back(), bed.size()); };
  const auto look = [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(chain.back().Path().status());
    CAIRN_RETURN_IF_ERROR(chain.back().Info().status());
    CAIRN_RETURN_IF_ERROR(chain.back().Spans(0, bed.size()).status());
    return chain.back().RestorableLength().status();
  };
  const auto fork_first = [&]() -> Status {
    return chain.back().ForkAt(1, UnnamedAt(Durability::kMemory)).status();
  };
  const auto rewind = [&](uint64_t i) {
    return chain.back().Rewind(bed.size() - 1 - i, Durability::kMemory);
  };
  const auto reopen = [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(bed.Open());
    for (Branch& branch : chain) {
      CAIRN_ASSIGN_OR_RETURN(branch, bed.store().GetBranch(branch.id()));
    }
    return Status::Ok();
  };
  CAIRN_RETURN_IF_ERROR(bed.Work("grow", Each(bed.size(), grow)));
  CAIRN_RETURN_IF_ERROR(bed.Work("restore", restore));
  CAIRN_RETURN_IF_ERROR(bed.Work("look", look));
  CAIRN_RETURN_IF_ERROR(bed.Work("fork_first", fork_first));
  CAIRN_RETURN_IF_ERROR(bed.CloseAndNoteBytes());
  CAIRN_RETURN_IF_ERROR(bed.Work("open", reopen));
  CAIRN_RETURN_IF_ERROR(bed.Work("restore_cold", restore));
  CAIRN_RETURN_IF_ERROR(
      bed.Work("verify", [&] { return bed.store().Verify(VerifyLevel::kAll).status(); }));
  CAIRN_RETURN_IF_ERROR(bed.Work("rewind", Each(bed.size(), rewind)));
  const auto drop = [&](uint64_t i) { return chain[i].Drop(Durability::kMemory); };
  CAIRN_RETURN_IF_ERROR(bed.Work("drop", Each(bed.size(), drop)));
  return bed.Work("compact_dropped", [&] { return bed.store().Compact(); });
}

// ---------------------------------------------------------------- namespaces

Status SweepNamespaces(SweepBed& bed) {
  const auto create = [&](uint64_t i) -> Status {
    CAIRN_ASSIGN_OR_RETURN(Branch branch,
                           bed.store().CreateBranch(bed.model(), Named("chat", NameAt(i))));
    return bed.Append(branch, 0, 2);
  };
  const auto set = [&](uint64_t i) {
    return bed.store().SetNamespace(NameAt(i), {.max_bytes = 1 << 20}, Durability::kMemory);
  };
  const auto list = [&] { return bed.store().Namespaces().status(); };
  const auto list_each = [&](uint64_t i) { return ListAll(bed.store(), NameAt(i)); };
  const auto append = [&](uint64_t i) -> Status {
    CAIRN_ASSIGN_OR_RETURN(Branch branch, bed.store().FindBranch("chat", NameAt(i)));
    return bed.Append(branch, 2, 4);
  };
  const auto drop = [&](uint64_t i) -> Status {
    CAIRN_ASSIGN_OR_RETURN(Branch branch, bed.store().FindBranch("chat", NameAt(i)));
    CAIRN_RETURN_IF_ERROR(branch.Drop(Durability::kMemory));
    return bed.store().SetNamespace(NameAt(i), {}, Durability::kMemory);
  };
  CAIRN_RETURN_IF_ERROR(bed.Work("create", Each(bed.size(), create)));
  CAIRN_RETURN_IF_ERROR(bed.Work("set", Each(bed.size(), set)));
  CAIRN_RETURN_IF_ERROR(bed.Work("list", list));
  CAIRN_RETURN_IF_ERROR(bed.CloseAndNoteBytes());
  CAIRN_RETURN_IF_ERROR(bed.Work("open", [&] { return bed.Open(); }));
  CAIRN_RETURN_IF_ERROR(bed.Work("list_each", Each(bed.size(), list_each)));
  CAIRN_RETURN_IF_ERROR(bed.Work("append", Each(bed.size(), append)));
  return bed.Work("drop", Each(bed.size(), drop));
}

constexpr SweepCase kCases[] = {
    {.name = "batch",
     .grows = "ops of a batch",
     .first_size = 4,
     .largest_size = kMaxBatchOps,
     .restore_tokens = 0,
     .run = SweepBatch},
    {.name = "names",
     .grows = "names of a namespace",
     .first_size = 10,
     .largest_size = 1'000'000,
     .restore_tokens = 0,
     .run = SweepNames},
    {.name = "chain",
     .grows = "nodes on one path",
     .first_size = 10,
     .largest_size = 100'000,
     .restore_tokens = 1,
     .run = SweepChain},
    {.name = "namespaces",
     .grows = "namespaces",
     .first_size = 10,
     .largest_size = 1'000'000,
     .restore_tokens = 0,
     .run = SweepNamespaces},
};

}  // namespace

std::span<const SweepCase> SweepCases() { return kCases; }

}  // namespace cairn::bench
