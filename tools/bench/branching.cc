// SPDX-License-Identifier: Apache-2.0
//
// fork, drop and rewind: what the tree of conversations costs, without KV bytes in the way.

#include <algorithm>
#include <array>
#include <vector>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kForksPerBlock = 1000;
constexpr uint64_t kShortTokens = 16;
constexpr uint64_t kDropShares = 10;

Result<Branch> GrownBranch(Store& store, ModelId model, uint64_t tokens) {
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.CreateBranch(model));
  std::vector<TokenId> ids(std::min<uint64_t>(tokens, 4096));
  for (uint64_t length = 0; length < tokens;) {
    const uint64_t count = std::min<uint64_t>(ids.size(), tokens - length);
    for (uint64_t i = 0; i < count; ++i) ids[i] = TokenAt(length + i);
    const std::span<const TokenId> next(ids.data(), count);
    CAIRN_ASSIGN_OR_RETURN(length, branch.AppendSync(TokenDelta(next)));
  }
  return branch;
}

}  // namespace

Status RunFork(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", 16 << 20));
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec small, ModelOfTokenBytes(2048));
  const KvPool pool(small, Layout::kNhd, kTokensPerBlock * 64, /*seed=*/1);
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(scratch + "/store", {}, report));
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, ModelOfTokenBytes(0));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(spec));
  CAIRN_ASSIGN_OR_RETURN(Branch longer, GrownBranch(store, model, config.tokens));
  CAIRN_ASSIGN_OR_RETURN(Branch shorter, GrownBranch(store, model, kShortTokens));

  // Log bytes are counted over whole blocks, so that the padding of a group is shared by its forks.
  uint64_t forks = 0, position = 0, log_bytes = 0;
  Arm ours{.name = "fork", .max_ops_per_block = kForksPerBlock};
  ours.prepare = [&] {
    position = config.tokens - forks++ % std::min<uint64_t>(config.tokens, 64);
    return Status::Ok();
  };
  const BranchOptions memory = UnnamedAt(Durability::kMemory);
  ours.op = [&](double*) { return longer.ForkAt(position, memory).status(); };
  Arm short_arm{.name = "fork of a short branch", .max_ops_per_block = kForksPerBlock};
  short_arm.op = [&](double*) { return shorter.ForkAt(kShortTokens, memory).status(); };
  uint64_t log_begin = 0;
  ours.before_block = [&] {
    CAIRN_RETURN_IF_ERROR(store.Flush());
    log_begin = store.Metrics().log_bytes_written;
    return Status::Ok();
  };
  short_arm.before_block = [&] { return store.Flush(); };
  auto raws = RawAppenders(*raw_file, pool, 1);
  std::vector<Arm*> arms = {&ours, &raws[0]->arm(), &short_arm};
  CAIRN_RETURN_IF_ERROR(RunInterleaved(config, "fork", arms));

  // Once more, alone, for the bytes.
  CAIRN_RETURN_IF_ERROR(ours.before_block());
  for (uint64_t i = 0; i < kForksPerBlock; ++i) CAIRN_RETURN_IF_ERROR(ours.op(nullptr));
  CAIRN_RETURN_IF_ERROR(store.Flush());
  log_bytes = store.Metrics().log_bytes_written - log_begin;

  report->Value("tokens", static_cast<double>(config.tokens), "length of the branch");
  report->Value("fork_us", ours.p50_us(), "p50 of ForkAt, kMemory");
  report->Value("fork_p99_us", Quantile(ours.op_us, 0.99), "its slow end");
  report->Value("fork_short_us", short_arm.p50_us(), "the same on a branch of 16 tokens");
  report->Value("fork_bytes", static_cast<double>(log_bytes) / kForksPerBlock,
                "log bytes a fork, over 1000 forks");
  report->Value("raw_write_p50_us", raws[0]->arm().p50_us(), "one durable raw write of 4 KiB");
  report->AddRatio("p50_to_short", RatioOfP50(ours, short_arm), "1: length does not matter");
  report->AddRatio("p50_to_raw_write", RatioOfP50(ours, raws[0]->arm()), "lower is better");
  return store.Close();
}

// Children of one node, dropped in the order they were made in. A tree that finds out by a scan
// whether a child is left would pass over all that were dropped before, once for each drop.
Status RunDrop(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(scratch + "/store", {}, report));
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, ModelOfTokenBytes(0));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(spec));
  CAIRN_ASSIGN_OR_RETURN(Branch root, GrownBranch(store, model, kShortTokens));
  const uint64_t share = std::max<uint64_t>(1, config.branches / kDropShares);
  std::vector<Branch> children;
  children.reserve(share * kDropShares);
  Progress progress("drop: " + std::to_string(share * kDropShares) + " branches", 2 * kDropShares);
  std::array<TokenId, 1> id{};
  const double begin = NowUs();
  while (children.size() < share * kDropShares) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    CAIRN_ASSIGN_OR_RETURN(Branch child, root.ForkAt(kShortTokens, UnnamedAt(Durability::kMemory)));
    id[0] = TokenAt(children.size());  // So that it has a node of its own.
    CAIRN_RETURN_IF_ERROR(child.AppendSync(TokenDelta(id), AppendAt(Durability::kMemory)).status());
    children.push_back(std::move(child));
    if (children.size() % share == 0) progress.Step();
  }
  const double made_us = NowUs() - begin;
  const double seal_begin = NowUs();
  CAIRN_RETURN_IF_ERROR(store.Compact());  // The index has them all; memory some.
  const double seal_us = NowUs() - seal_begin;
  const StoreMetrics before = store.Metrics();

  Arm drop{.name = "drop"};
  std::vector<double> share_us;
  for (uint64_t at = 0; at < children.size(); at += share) {
    const double share_begin = NowUs();
    for (uint64_t i = at; i < at + share; ++i) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      const double start = NowUs();
      CAIRN_RETURN_IF_ERROR(children[i].Drop(Durability::kMemory));
      drop.op_us.push_back(NowUs() - start);
    }
    CAIRN_RETURN_IF_ERROR(store.Flush());
    share_us.push_back((NowUs() - share_begin) / static_cast<double>(share));
    progress.Step();
  }
  const StoreMetrics after = store.Metrics();
  const double compact_begin = NowUs();
  CAIRN_RETURN_IF_ERROR(store.Compact());
  const double compact_us = NowUs() - compact_begin;
  const StoreMetrics end = store.Metrics();
  if (end.nodes > 1) {
    return Status(StatusCode::kInvalidState,
                  std::to_string(end.nodes) + " nodes are left, of one branch");
  }
  const auto count = static_cast<double>(children.size());
  report->Value("branches", count, "children of one node, each with a token of its own");
  report->Value("make_us", made_us / count, "to fork one and append to it, kMemory");
  report->Value("seal_us", seal_us / count, "to seal it: Compact after the last");
  report->Value("nodes", static_cast<double>(before.nodes), "in the tree before");
  report->Value("first_drop_us", share_us.front(), "of one in the first tenth, flushed at its end");
  report->Value("last_drop_us", share_us.back(), "of one in the last tenth");
  report->Value("drop_p50_us", Quantile(drop.op_us, 0.5), "of the call, kMemory");
  report->Value("drop_p99_us", Quantile(drop.op_us, 0.99), "its slow end");
  report->Value("longest_drop_us", Quantile(drop.op_us, 1), "the slowest");
  report->Value("log_bytes_per_drop",
                static_cast<double>(after.log_bytes_written - before.log_bytes_written) / count,
                "with frames and padding");
  report->Value("compact_ms", compact_us / 1e3, "afterwards");
  report->Value("rss_mib", static_cast<double>(ResidentBytes()) / (1 << 20), "at the end");
  const auto [least, most] = std::minmax_element(share_us.begin(), share_us.end());
  report->AddRatio("last_to_first",
                   {.value = share_us.back() / share_us.front(),
                    .min = *least / share_us.front(),
                    .max = *most / share_us.front()},
                   "of a tenth to the first, 1: those dropped before cost nothing");
  return store.Close();
}

Status RunRewind(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(scratch + "/store", {}, report));
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, ModelOfTokenBytes(0));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(spec));
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.CreateBranch(model));

  // Speculative decoding: four tokens are tried, two are kept. Each step is a pair, so the two arms
  // are interleaved step by step and share their blocks.
  std::array<TokenId, 4> ids{};
  uint64_t length = 0;
  Arm append{.name = "append"}, rewind{.name = "rewind"};
  const uint64_t steps_per_block = std::max<uint64_t>(1, config.steps / config.rounds);
  Progress progress("rewind", config.rounds);
  for (uint32_t round = 0; round < config.rounds; ++round) {
    std::vector<double> append_us, rewind_us;
    for (uint64_t step = 0; step < steps_per_block; ++step) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = TokenAt(length + i);
      const double start = NowUs();
      CAIRN_ASSIGN_OR_RETURN(length,
                             branch.AppendSync(TokenDelta(ids), AppendAt(Durability::kMemory)));
      const double middle = NowUs();
      length -= 2;
      CAIRN_RETURN_IF_ERROR(branch.Rewind(length, Durability::kMemory));
      append_us.push_back(middle - start);
      rewind_us.push_back(NowUs() - middle);
    }
    append.blocks.push_back({.p50_us = Median(append_us)});
    rewind.blocks.push_back({.p50_us = Median(rewind_us)});
    append.op_us.insert(append.op_us.end(), append_us.begin(), append_us.end());
    rewind.op_us.insert(rewind.op_us.end(), rewind_us.begin(), rewind_us.end());
    progress.Step();
  }
  CAIRN_RETURN_IF_ERROR(store.Flush());
  const StoreMetrics metrics = store.Metrics();
  report->Value("steps", static_cast<double>(rewind.ops()), "append four tokens, rewind by two");
  report->Value("nodes", static_cast<double>(metrics.nodes), "in the tree at the end");
  report->Value("append_p50_us", append.p50_us(), "four tokens, kMemory");
  report->Value("rewind_p50_us", rewind.p50_us(), "by two tokens, kMemory");
  report->Value("log_bytes_per_step",
                static_cast<double>(metrics.log_bytes_written) / static_cast<double>(rewind.ops()),
                "with frames and padding");
  report->AddRatio("p50_to_append", RatioOfP50(rewind, append),
                   "rewind to append, lower is better");
  return store.Close();
}

}  // namespace cairn::bench
