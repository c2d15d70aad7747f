// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/trace_replay.h"

#include <chrono>
#include <thread>

#include "base/core/check.h"
#include "tools/bench/bench.h"
#include "tools/bench/fixture.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kAppendBytes = 2 << 20;   // A prompt comes in chunks, as prefill does.
constexpr uint64_t kMaxAppendTokens = 2048;  // The same, where a token's KV is small.
constexpr uint64_t kOutputTokens = 16;       // Tokens of an output per append.
constexpr uint64_t kSamplesPerRestore = 32;  // Positions compared of each piece.
constexpr uint64_t kProgressSteps = 100;
constexpr double kRoomWaitUs = 60e6;  // Then what the branches hold is more than fits.
constexpr std::chrono::milliseconds kRoomAskAgain(2);

uint64_t Covered(const TraceRequest& request, uint64_t block_tokens) {
  return std::min(request.ids.size() * block_tokens, request.input_tokens);
}

uint64_t SeedOf(uint64_t salt, const std::vector<uint64_t>& ids, uint64_t block_tokens,
                uint64_t position) {
  return MixSeeds(MixSeeds(salt, ids[position / block_tokens]), position % block_tokens);
}

}  // namespace

Result<std::unique_ptr<Replay>> Replay::Create(const ModelSpec& model, Durability durability,
                                               uint64_t restore_bytes) {
  const uint64_t token_bytes = model.token_bytes();
  const uint64_t append = std::clamp(kAppendBytes / token_bytes, kOutputTokens, kMaxAppendTokens);
  CAIRN_ASSIGN_OR_RETURN(auto source, FlatKv::Create(model, append));
  CAIRN_ASSIGN_OR_RETURN(auto target,
                         FlatKv::Create(model, std::max(restore_bytes / token_bytes, uint64_t{1})));
  return std::unique_ptr<Replay>(
      new Replay(model, durability, std::move(source), std::move(target)));
}

Replay::Replay(const ModelSpec& model, Durability durability, std::unique_ptr<FlatKv> source,
               std::unique_ptr<FlatKv> target)
    : spec_(model),
      durability_(durability),
      token_bytes_(model.token_bytes()),
      source_(std::move(source)),
      target_(std::move(target)),
      source_ids_(source_->tokens()),
      target_ids_(target_->tokens()) {}

bool Replay::LimitReached() const {
  return (limits_.requests > 0 && totals_.requests >= limits_.requests) ||
         (limits_.kv_bytes > 0 && KvBytes() >= limits_.kv_bytes);
}

Status Replay::Run(Store& store, TraceReader& reader, const ReplayLimits& limits) {
  CAIRN_CHECK(store_ == nullptr);
  CAIRN_ASSIGN_OR_RETURN(model_, store.RegisterModel(spec_));
  store_ = &store;
  limits_ = limits;
  Progress progress("replaying", kProgressSteps);
  uint64_t shown = 0;
  std::vector<Conversation> open(limits.sessions_at_once);
  size_t ended = 0;  // Places that found no further session.
  for (size_t turn = 0; ended < open.size() && !LimitReached(); turn = (turn + 1) % open.size()) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    Conversation& conversation = open[turn];
    if (conversation.next == conversation.session.requests.size()) {
      CAIRN_ASSIGN_OR_RETURN(const bool started, StartNext(reader, &conversation));
      if (!started) {
        if (++ended < open.size()) continue;
        break;
      }
    }
    ended = 0;
    const TraceRequest& request = conversation.session.requests[conversation.next++];
    CAIRN_RETURN_IF_ERROR(Serve(*conversation.tree, request).WithContext(request.where));
    const auto part = [](uint64_t done, uint64_t limit) {
      return limit == 0 ? 0 : std::min(kProgressSteps, done * kProgressSteps / limit);
    };
    const uint64_t done =
        std::max(part(totals_.requests, limits.requests), part(KvBytes(), limits.kv_bytes));
    for (; shown < done; ++shown) progress.Step();
  }
  if (totals_.requests == 0) {
    return Status(StatusCode::kNotFound, "the trace holds no requests");
  }
  return store_->Flush();
}

// Dropping waits until the place is wanted, so the last sessions are still there in the end.
Result<bool> Replay::StartNext(TraceReader& reader, Conversation* conversation) {
  CAIRN_ASSIGN_OR_RETURN(std::optional<TraceSession> session, reader.Next());
  if (!session.has_value()) return false;
  CAIRN_RETURN_IF_ERROR(End(*conversation));
  std::shared_ptr<Tree> tree;
  if (session->shares_ids) tree = shared_trees_[session->block_tokens];
  if (tree == nullptr) {
    tree = std::make_shared<Tree>();
    tree->salt = totals_.sessions;
    tree->block_tokens = session->block_tokens;
    trees_.push_back(tree);
    if (session->shares_ids) shared_trees_[session->block_tokens] = tree;
  }
  conversation->tree = std::move(tree);
  conversation->session = std::move(*session);
  conversation->next = 0;
  ++totals_.sessions;
  return true;
}

Status Replay::End(Conversation& conversation) {
  if (conversation.tree == nullptr || conversation.session.shares_ids) return Status::Ok();
  for (const auto& line : conversation.tree->lines) {
    CAIRN_RETURN_IF_ERROR(line->branch.Drop(durability_));
    ++totals_.drops;
  }
  std::erase(trees_, conversation.tree);
  return Status::Ok();
}

Status Replay::Serve(Tree& tree, const TraceRequest& request) {
  CAIRN_RETURN_IF_ERROR(CheckIds(tree, request));
  CAIRN_ASSIGN_OR_RETURN(const Match match, FindPrefix(tree, request));
  CAIRN_ASSIGN_OR_RETURN(Line* const line, Continue(tree, request, match));
  ++totals_.requests;
  totals_.input_tokens += request.input_tokens;
  totals_.hit_tokens += match.tokens;

  double restore_us = 0;
  for (uint64_t begin = 0; begin < match.tokens; begin += target_->tokens()) {
    const uint64_t end = std::min(begin + target_->tokens(), match.tokens);
    CAIRN_RETURN_IF_ERROR(RestorePiece(tree, *line, line->branch, begin, end, &restore_us));
  }
  totals_.restored_bytes += match.tokens * token_bytes_;
  if (match.tokens > 0) totals_.restore_us.push_back(restore_us);

  CAIRN_RETURN_IF_ERROR(AppendUntil(tree, request, *line, request.input_tokens, source_->tokens()));
  Identify(tree, request, *line);
  CAIRN_RETURN_IF_ERROR(AppendUntil(tree, request, *line,
                                    request.input_tokens + request.output_tokens, kOutputTokens));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, line->branch.Info());
  line->node = info.node;
  tree.by_node[line->node] = line;
  return Status::Ok();
}

Status Replay::CheckIds(Tree& tree, const TraceRequest& request) {
  for (size_t i = 0; i < request.ids.size(); ++i) {
    const Stand here{i, i == 0 ? 0 : request.ids[i - 1]};
    const Stand& before = tree.stands.try_emplace(request.ids[i], here).first->second;
    if (before.block == here.block && before.behind == here.behind) continue;
    return Status(StatusCode::kCorruption,
                  "hash id " + std::to_string(request.ids[i]) + " is block " + std::to_string(i) +
                      " here and stood behind other blocks, as block " +
                      std::to_string(before.block) + ", before: an id names a whole prefix");
  }
  return Status::Ok();
}

// Up to the end of what ids identify, or to a whole block.
Result<Replay::Match> Replay::FindPrefix(const Tree& tree, const TraceRequest& request) {
  const uint64_t covered = Covered(request, tree.block_tokens);
  std::vector<TokenId> ids(covered);
  for (uint64_t i = 0; i < covered; ++i) {
    ids[i] = GeneratedToken(SeedOf(tree.salt, request.ids, tree.block_tokens, i));
  }
  PrefixQuery query;
  query.model = model_;
  query.tokens = ids;
  const double start = NowUs();
  CAIRN_ASSIGN_OR_RETURN(PrefixHit hit, store_->FindPrefix(query));
  totals_.find_us.push_back(NowUs() - start);
  const uint64_t whole =
      hit.restorable == covered ? covered : hit.restorable - hit.restorable % tree.block_tokens;
  const size_t blocks = (whole + tree.block_tokens - 1) / tree.block_tokens;
  return Match{blocks, whole, hit};
}

Result<Replay::Line*> Replay::Continue(Tree& tree, const TraceRequest& request,
                                       const Match& match) {
  const auto found = tree.by_node.find(match.hit.node);
  Line* line = match.tokens == 0 || found == tree.by_node.end() ? nullptr : found->second;
  const bool in_place = line != nullptr && match.blocks >= line->identified / tree.block_tokens;
  if (in_place) {
    if (line->length > match.tokens) {
      CAIRN_RETURN_IF_ERROR(line->branch.Rewind(match.tokens, durability_));
      ++totals_.rewinds;
    }
    tree.by_node.erase(found);  // It may go on elsewhere.
  } else {
    auto made = std::make_unique<Line>();
    if (match.tokens == 0) {
      CAIRN_ASSIGN_OR_RETURN(made->branch, store_->CreateBranch(model_, UnnamedAt(durability_)));
    } else {
      CAIRN_ASSIGN_OR_RETURN(made->branch,
                             store_->Fork(match.hit, match.tokens, UnnamedAt(durability_)));
      ++totals_.forks;
    }
    tree.lines.push_back(std::move(made));
    line = tree.lines.back().get();
  }
  line->length = match.tokens;
  line->identified = match.tokens;
  line->ids.assign(request.ids.begin(), request.ids.begin() + static_cast<ptrdiff_t>(match.blocks));
  return line;
}

Status Replay::RestorePiece(const Tree& tree, const Line& line, const Branch& branch,
                            uint64_t begin, uint64_t end, double* us) {
  const uint64_t count = end - begin;
  RestoreRequest request;
  request.begin = begin;
  request.end = end;
  request.tokens = {target_ids_.data(), count};
  request.into = &target_->At(begin, count);
  const double start = NowUs();
  const Result<RestoreResult> result = branch.Restore(request);
  *us += NowUs() - start;
  CAIRN_RETURN_IF_ERROR(result.status());
  if (result->end != end || result->bytes != count * token_bytes_) {
    return Status(StatusCode::kCorruption, "a restore of " + std::to_string(count) +
                                               " tokens gave " + std::to_string(result->bytes) +
                                               " bytes up to " + std::to_string(result->end));
  }
  const uint64_t step = std::max(count / kSamplesPerRestore, uint64_t{1});
  // Counted from the end, so that the newest position is always among them.
  for (uint64_t back = 1; back <= count; back += step) {
    const uint64_t index = count - back;
    const uint64_t seed = SeedOf(tree.salt, line.ids, tree.block_tokens, begin + index);
    if (target_ids_[index] != GeneratedToken(seed) || !IsGeneratedKv(seed, target_->token(index))) {
      return Status(StatusCode::kCorruption, "position " + std::to_string(begin + index) +
                                                 " came back other than it was appended");
    }
    ++totals_.verified_tokens;
  }
  return Status::Ok();
}

Result<uint64_t> Replay::AppendWithRoom(Branch& branch, const Delta& delta,
                                        uint64_t expected_length) {
  AppendOptions options = AppendAt(durability_);
  options.expected_length = expected_length;
  const double give_up_us = NowUs() + kRoomWaitUs;
  bool waits = false;
  while (true) {
    auto length = branch.AppendSync(delta, options);
    if (length.status().code() != StatusCode::kNoSpace || NowUs() >= give_up_us) return length;
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    totals_.waits_for_room += waits ? 0 : 1;
    waits = true;
    std::this_thread::sleep_for(kRoomAskAgain);
  }
}

Status Replay::AppendUntil(const Tree& tree, const TraceRequest& request, Line& line, uint64_t end,
                           uint64_t piece_tokens) {
  const uint64_t covered = Covered(request, tree.block_tokens);
  const uint64_t unnamed = MixSeeds(~tree.salt, totals_.requests);  // Content without an id.
  while (line.length < end && !(limits_.kv_bytes > 0 && KvBytes() >= limits_.kv_bytes)) {
    const uint64_t count = std::min(piece_tokens, end - line.length);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t position = line.length + i;
      const uint64_t seed = position < covered
                                ? SeedOf(tree.salt, request.ids, tree.block_tokens, position)
                                : MixSeeds(unnamed, position);
      source_ids_[i] = GeneratedToken(seed);
      GenerateKv(seed, source_->token(i));
    }
    const Delta delta = TokenDelta({source_ids_.data(), count}, &source_->At(line.length, count));
    const double start = NowUs();
    CAIRN_ASSIGN_OR_RETURN(line.length, AppendWithRoom(line.branch, delta, line.length));
    totals_.append_us.push_back(NowUs() - start);
    totals_.appended_tokens += count;
  }
  return Status::Ok();
}

// Where a limit cut the prompt short, as far as it goes.
void Replay::Identify(const Tree& tree, const TraceRequest& request, Line& line) {
  const uint64_t covered = Covered(request, tree.block_tokens);
  for (size_t i = line.ids.size(); i < request.ids.size(); ++i) {
    const uint64_t end = std::min((i + 1) * tree.block_tokens, covered);
    if (end > line.length) break;
    line.ids.push_back(request.ids[i]);
    line.identified = end;
  }
}

uint64_t Replay::branches() const {
  uint64_t count = 0;
  for (const auto& tree : trees_) count += tree->lines.size();
  return count;
}

Result<uint64_t> Replay::LiveTokens() const {
  // Every path uses a node from its beginning, so the furthest end on a node is what lives of it.
  std::map<NodeId, std::pair<uint64_t, uint64_t>> nodes;
  for (const auto& tree : trees_) {
    for (const auto& line : tree->lines) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<PathStep> path, line->branch.Path());
      for (const PathStep& step : path) {
        auto& [begin, end] = nodes.try_emplace(step.node, step.begin, step.end).first->second;
        begin = std::min(begin, step.begin);
        end = std::max(end, step.end);
      }
    }
  }
  uint64_t tokens = 0;
  for (const auto& [node, range] : nodes) tokens += range.second - range.first;
  return tokens;
}

Status Replay::VerifyAll(Store& store) {
  double unused_us = 0;
  for (const auto& tree : trees_) {
    for (const auto& line : tree->lines) {
      if (line->identified == 0) continue;
      CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.GetBranch(line->branch.id()));
      const uint64_t end = std::min(line->identified, target_->tokens());
      CAIRN_RETURN_IF_ERROR(RestorePiece(*tree, *line, branch, 0, end, &unused_us));
    }
  }
  return Status::Ok();
}

}  // namespace cairn::bench
