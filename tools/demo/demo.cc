// SPDX-License-Identifier: Apache-2.0

#include "tools/demo/demo.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "cairn/store.h"
#include "tools/demo/conversation.h"
#include "tools/demo/printable.h"
#include "tools/demo/proof.h"
#include "tools/demo/session.h"
#include "tools/demo/tree_print.h"
#include "tools/demo/victim.h"

namespace cairn::demo {
namespace {

constexpr char kTrunk[] = "story";
constexpr int kRestoreRounds = 5;  // After each reopening, every branch once.

// Where a fork leaves which branch, and how it samples. Those of the trunk leave it at this many
// sixteenths of what was generated; those of an earlier fork in the middle of its own tokens.
struct ForkPlan {
  int from = -1;  // Index of the fork that it leaves; -1: the trunk.
  int sixteenths = 0;
  llama::SamplerOptions sampling;
};
constexpr std::array<ForkPlan, kForks> kForkPlans = {{
    {-1, 1, {.temperature = 0.0f}},
    {-1, 3, {.temperature = 0.4f}},
    {-1, 6, {.temperature = 0.7f, .top_p = 0.5f}},
    {-1, 8, {.temperature = 0.8f, .top_p = 0.95f}},
    {-1, 11, {.temperature = 1.0f, .top_k = 20}},
    {-1, 15, {.temperature = 1.3f, .top_p = 0.9f}},
    {1, 0, {.temperature = 0.9f}},
    {6, 0, {.temperature = 0.6f, .top_k = 5}},
}};
constexpr llama::SamplerOptions kTrunkSampling = {.temperature = 0.8f, .top_p = 0.95f};

Status Cancelled() { return Status(StatusCode::kCancelled, "interrupted"); }

class Demo {
 public:
  Demo(const Settings& settings, const llama::Model& model, ModelSpec spec, Console* console,
       Report* report)
      : settings_(settings),
        model_(model),
        spec_(std::move(spec)),
        console_(*console),
        report_(*report),
        transformer_(model.checkpoint),
        prompt_(model.tokenizer.Encode(settings.prompt)),
        uninterrupted_(NewConversation(prompt_, TrunkSampler())),
        chance_(std::random_device{}()) {}

  Status Run();

 private:
  int prompt_length() const { return static_cast<int>(prompt_.size()); }
  int trunk_length() const { return prompt_length() + settings_.tokens; }
  llama::Sampler TrunkSampler() const { return {kTrunkSampling, {.seed = settings_.seed}}; }

  Conversation NewConversation(std::vector<int32_t> tokens, const llama::Sampler& sampler) {
    return Conversation(&transformer_, trunk_length() + kForkTokens, std::move(tokens), sampler);
  }

  Result<Store> OpenStore();
  Status Generate(Branch branch, Conversation* conversation, int until,
                  const Victim::Acknowledge& acknowledge);
  Status GenerateTrunkInChild(int until, const Victim::Acknowledge& acknowledge);

  Status RunUninterrupted();
  Status KillOnce(int number);
  Result<std::vector<Acknowledgement>> WatchAndKill(int number);
  Status ContinueTrunk();
  Status ForkAll();
  Status Fork(Store* store, size_t index);
  Status ReopenAndCompare();
  Result<std::string> DrawAndReport(const Store& store);

  void Prove(const std::string& claim, const std::string& difference);
  void ShowText(const std::string& what, const std::vector<int32_t>& tokens);

  // How a branch stood when it was last saved.
  struct Saved {
    std::string name;
    int begin = 0;  // Where it left its parent.
    std::vector<int32_t> tokens;
    llama::Sampler sampler;
  };

  const Settings& settings_;
  const llama::Model& model_;
  const ModelSpec spec_;
  Console& console_;
  Report& report_;
  llama::Transformer<float> transformer_;
  const std::vector<int32_t> prompt_;
  Conversation uninterrupted_;
  std::mt19937_64 chance_;  // When to kill. Nothing that is proved depends on it.
  int recovered_length_ = 0;
  std::vector<Saved> saved_;  // The trunk, then the forks.
};

Status Demo::Run() {
  CAIRN_RETURN_IF_ERROR(RunUninterrupted());
  for (int number = 1; number <= settings_.kills; ++number) {
    CAIRN_RETURN_IF_ERROR(KillOnce(number));
  }
  CAIRN_RETURN_IF_ERROR(ContinueTrunk());
  CAIRN_RETURN_IF_ERROR(ForkAll());
  return ReopenAndCompare();
}

Result<Store> Demo::OpenStore() {
  Options options;
  options.create_if_missing = true;
  options.backend = settings_.backend;
  // Small: a new store has two written in advance, and so has each reopened one.
  options.segment_bytes = 4ull << 20;
  options.spare_segments_max = 4;
  const Stopwatch watch;
  CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(settings_.dir, options));
  report_.open.Add(watch.ms());
  report_.io_name = store.io_name();
  report_.sync_method = store.sync_method();
  return store;
}

// Samples up to `until` tokens; each is on stable media before the next is sampled.
Status Demo::Generate(Branch branch, Conversation* conversation, int until,
                      const Victim::Acknowledge& acknowledge) {
  while (conversation->length() < until) {
    if (Interrupted()) return Cancelled();
    conversation->Next();
    const Stopwatch watch;
    CAIRN_RETURN_IF_ERROR(Save(branch, conversation));
    const double nanoseconds = std::min(watch.ms() * 1e6, static_cast<double>(UINT32_MAX));
    acknowledge({.length = static_cast<uint64_t>(conversation->length()),
                 .token = conversation->tokens().back(),
                 .append_ns = static_cast<uint32_t>(nanoseconds)});
  }
  return Status::Ok();
}

Status Demo::RunUninterrupted() {
  const Stopwatch watch;
  while (uninterrupted_.length() < trunk_length()) {
    if (Interrupted()) return Cancelled();
    uninterrupted_.Next();
    ShowText("in memory", uninterrupted_.tokens());
  }
  console_.Say("In memory, never killed: " + std::to_string(settings_.tokens) + " tokens in " +
               std::to_string(static_cast<int>(watch.ms())) + " ms. Now with a store.");
  return Status::Ok();
}

Status Demo::GenerateTrunkInChild(int until, const Victim::Acknowledge& acknowledge) {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore());
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(spec_));
  Conversation conversation = NewConversation(prompt_, TrunkSampler());
  Result<Branch> branch = store.FindBranch(kTrunk);
  if (branch.ok()) {
    CAIRN_RETURN_IF_ERROR(Load(*branch, &conversation));
  } else if (branch.status().code() == StatusCode::kNotFound) {
    CAIRN_ASSIGN_OR_RETURN(branch, store.CreateBranch(model, {.name = kTrunk}));
  } else {
    return branch.status();
  }
  return Generate(*branch, &conversation, until, acknowledge);
}

// A share of what is left on average, so that every kill finds the child at work. However slowly it
// comes, a child leaves something to do for those after it.
Result<std::vector<Acknowledgement>> Demo::WatchAndKill(int number) {
  const int have = std::max(recovered_length_, prompt_length());
  const int kills_left = settings_.kills - number;
  const int until = trunk_length() - kTokensLeftAfterKills - kills_left * kAcknowledgementsMin;
  const int share = (until - have) / (kills_left + 2);
  std::uniform_int_distribution<int> pick_count(kAcknowledgementsMin,
                                                std::max(kAcknowledgementsMin, share + share / 2));
  const size_t count = static_cast<size_t>(pick_count(chance_));

  CAIRN_ASSIGN_OR_RETURN(Victim victim,
                         Victim::Start([this, until](const Victim::Acknowledge& tell) {
                           return GenerateTrunkInChild(until, tell);
                         }));
  std::vector<Acknowledgement> heard;
  std::vector<int32_t> tokens(uninterrupted_.tokens().begin(),
                              uninterrupted_.tokens().begin() + have);
  const Stopwatch watch;
  while (heard.size() < count) {
    const std::optional<Acknowledgement> next = victim.Next();
    if (!next) return Interrupted() ? Cancelled() : victim.Kill().status();
    heard.push_back(*next);
    tokens.push_back(next->token);
    ShowText("kill " + std::to_string(number), tokens);
  }
  // Anywhere in the next two tokens: computing, appending, waiting for the device.
  std::uniform_real_distribution<double> pick_ms(0, 2 * watch.ms() / static_cast<double>(count));
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(pick_ms(chance_)));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Acknowledgement> unread, victim.Kill());
  heard.insert(heard.end(), unread.begin(), unread.end());
  return heard;
}

Status Demo::KillOnce(int number) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Acknowledgement> heard, WatchAndKill(number));
  for (const Acknowledgement& acknowledgement : heard) {
    report_.append.Add(static_cast<double>(acknowledgement.append_ns) * 1e-6);
  }
  const Stopwatch watch;
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore());
  const double open_ms = watch.ms();
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(kTrunk));
  Conversation recovered = NewConversation(prompt_, TrunkSampler());
  CAIRN_RETURN_IF_ERROR(Load(branch, &recovered));
  recovered_length_ = recovered.length();

  report_.kills.push_back({.acknowledged = heard.back().length,
                           .recovered = static_cast<uint64_t>(recovered_length_),
                           .open_ms = open_ms});
  const std::string kill = "kill " + std::to_string(number);
  console_.Say("\nSIGKILL after " + std::to_string(heard.back().length) +
               " acknowledged tokens; reopened in " + std::to_string(static_cast<int>(open_ms)) +
               " ms: " + std::to_string(recovered_length_) + " are there" +
               (store.recovery_note().empty() ? "" : " (" + store.recovery_note() + ")"));
  Prove(kill + ": every acknowledged token is there",
        CompareAcknowledged(heard, recovered.tokens()));
  Prove(kill + ": tokens, KV and sampler are those of the run that was never killed",
        CompareToMomentOf(uninterrupted_, prompt_length(), recovered));
  return store.Close();
}

Status Demo::ContinueTrunk() {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore());
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(kTrunk));
  Conversation continued = NewConversation(prompt_, TrunkSampler());
  CAIRN_RETURN_IF_ERROR(Load(branch, &continued));
  CAIRN_RETURN_IF_ERROR(
      Generate(branch, &continued, trunk_length(), [&](const Acknowledgement& acknowledgement) {
        report_.append.Add(static_cast<double>(acknowledgement.append_ns) * 1e-6);
        ShowText("continued", continued.tokens());
      }));
  const std::span<const Step> all_steps = uninterrupted_.steps();
  console_.Say("\nContinued for " + std::to_string(continued.steps().size()) +
               " tokens, beside the run that was never killed:");
  const size_t steps = continued.steps().size();
  Prove("continuation: every token, logit and sampler state is bit-identical",
        CompareSteps(all_steps.last(std::min(steps, all_steps.size())), continued.steps()));
  Prove("continuation: all tokens, KV bytes and the sampler are bit-identical",
        CompareState(uninterrupted_, continued));
  saved_.push_back(
      {.name = kTrunk, .begin = 0, .tokens = continued.tokens(), .sampler = continued.sampler()});
  return store.Close();
}

Status Demo::ForkAll() {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore());
  console_.Say("\nEight forks, each beside a run in memory over the same tokens:");
  for (size_t index = 0; index < kForkPlans.size(); ++index) {
    CAIRN_RETURN_IF_ERROR(Fork(&store, index));
  }
  report_.space.fork_own_positions = kForkTokens;
  return store.Close();
}

Status Demo::Fork(Store* store, size_t index) {
  const ForkPlan& plan = kForkPlans[index];
  const Saved& from = saved_[static_cast<size_t>(plan.from + 1)];
  const int position = plan.from < 0
                           ? prompt_length() + std::max(1, settings_.tokens * plan.sixteenths / 16)
                           : from.begin + kForkTokens / 2;
  const std::string name = "fork-" + std::to_string(index + 1);
  const llama::Sampler sampler(plan.sampling, {.seed = settings_.seed + 1 + index});

  CAIRN_ASSIGN_OR_RETURN(const Branch parent, store->FindBranch(from.name));
  const uint64_t log_bytes = store->Metrics().log_bytes_written;
  const Stopwatch watch;
  CAIRN_ASSIGN_OR_RETURN(const Branch branch,
                         parent.ForkAt(static_cast<uint64_t>(position),
                                       {.name = name, .durability = Durability::kPower}));
  report_.fork.Add(watch.ms());
  const uint64_t fork_log_bytes = store->Metrics().log_bytes_written - log_bytes;
  // The first one after opening also begins a new log segment.
  report_.space.fork_log_bytes =
      index == 0 ? fork_log_bytes : std::min(report_.space.fork_log_bytes, fork_log_bytes);

  Conversation forked = NewConversation(prompt_, sampler);
  CAIRN_RETURN_IF_ERROR(Load(branch, &forked));
  forked.Resume(forked.tokens(), forked.kv_length(), sampler);
  Conversation in_memory =
      NewConversation({from.tokens.begin(), from.tokens.begin() + position}, sampler);
  CAIRN_RETURN_IF_ERROR(Generate(
      branch, &forked, position + kForkTokens, [&](const Acknowledgement& acknowledgement) {
        report_.append.Add(static_cast<double>(acknowledgement.append_ns) * 1e-6);
        ShowText(name, forked.tokens());
      }));
  for (int i = 0; i < kForkTokens; ++i) in_memory.Next();
  std::string difference = CompareSteps(in_memory.steps(), forked.steps());
  if (difference.empty()) difference = CompareState(in_memory, forked);
  Prove(name + " of " + from.name + " at " + std::to_string(position) +
            ": tokens, logits, KV bytes and sampler are bit-identical",
        difference);
  saved_.push_back(
      {.name = name, .begin = position, .tokens = forked.tokens(), .sampler = forked.sampler()});
  return Status::Ok();
}

// Restores are timed in stores that were just opened, beside the forward pass that they replace.
Status Demo::ReopenAndCompare() {
  std::vector<Conversation> recomputed;
  for (const Saved& saved : saved_) {
    if (Interrupted()) return Cancelled();
    console_.Update("computing " + saved.name + " again, to compare with");
    Conversation& conversation =
        recomputed.emplace_back(NewConversation(saved.tokens, saved.sampler));
    const Stopwatch watch;
    conversation.Prefill();
    report_.recompute.Add(watch.ms());
    report_.space.stored_positions += saved.tokens.size() - static_cast<size_t>(saved.begin);
    report_.space.copied_positions += saved.tokens.size();
  }
  std::string difference, trunk_difference, tree;
  for (int round = 0; round < kRestoreRounds; ++round) {
    CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore());
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (Interrupted()) return Cancelled();
      CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(saved_[i].name));
      Conversation restored = NewConversation(prompt_, TrunkSampler());
      const Stopwatch watch;
      CAIRN_RETURN_IF_ERROR(Load(branch, &restored));
      report_.restore.Add(watch.ms());
      if (i == 0 && trunk_difference.empty()) {
        trunk_difference = CompareState(uninterrupted_, restored);
      }
      if (!difference.empty()) continue;
      difference = CompareState(recomputed[i], restored);
      if (!difference.empty()) difference = saved_[i].name + ": " + difference;
    }
    if (round == kRestoreRounds - 1) {
      report_.space.metrics = store.Metrics();
      report_.space.position_bytes = spec_.token_bytes();
      CAIRN_ASSIGN_OR_RETURN(tree, DrawAndReport(store));
    }
    CAIRN_RETURN_IF_ERROR(store.Close());
  }
  console_.Say("\nReopened " + std::to_string(kRestoreRounds) + " times:");
  Prove("the trunk did not change under its forks", trunk_difference);
  Prove("what is restored of all nine branches is what computing them again gives", difference);
  console_.Say("\n" + tree);
  return Status::Ok();
}

Result<std::string> Demo::DrawAndReport(const Store& store) {
  CAIRN_ASSIGN_OR_RETURN(
      const std::vector<BranchPicture> tree, ReadTree(store, [&](std::span<const TokenId> tokens) {
        return model_.tokenizer.Decode(std::vector<int32_t>(tokens.begin(), tokens.end()));
      }));
  for (const BranchPicture& branch : tree) {
    report_.branches.push_back(
        {{"name", branch.name},
         {"parent", branch.parent < 0 ? "" : tree[static_cast<size_t>(branch.parent)].name},
         {"begin", branch.begin},
         {"end", branch.end},
         {"sampling", SamplingText(branch.sampler)},
         {"text", Printable(branch.text)}});
  }
  return DrawTree(tree, static_cast<size_t>(console_.columns()));
}

void Demo::Prove(const std::string& claim, const std::string& difference) {
  report_.proofs.push_back({.claim = claim, .difference = difference});
  console_.Say(difference.empty() ? "  PROVED  " + claim
                                  : "  FAILED  " + claim + ": " + difference);
}

void Demo::ShowText(const std::string& what, const std::vector<int32_t>& tokens) {
  constexpr size_t kTokensShown = 40;
  const size_t begin = tokens.size() - std::min(tokens.size(), kTokensShown);
  const std::string head = what + ": " + std::to_string(tokens.size()) + " tokens  ";
  const size_t room = static_cast<size_t>(console_.columns()) - 1;
  const std::string text = Printable(model_.tokenizer.Decode(std::span(tokens).subspan(begin)));
  console_.Update(head + ClipFront(text, room - std::min(room - 1, Columns(head))));
}

}  // namespace

Status RunDemo(const Settings& settings, Console* console, Report* report) {
  report->seed = settings.seed;
  report->tokens = static_cast<uint64_t>(settings.tokens);
  std::string error;
  const std::optional<llama::Model> model =
      llama::LoadModel(settings.checkpoint, settings.tokenizer, &error);
  if (!model) return Status(StatusCode::kInvalidArgument, error);
  const llama::Config& config = model->checkpoint.config();
  const size_t positions = model->tokenizer.Encode(settings.prompt).size() +
                           static_cast<size_t>(settings.tokens + kForkTokens);
  if (positions > static_cast<size_t>(config.max_positions)) {
    return Status(StatusCode::kInvalidArgument,
                  "prompt, tokens and forks take " + std::to_string(positions) +
                      " positions, the model has " + std::to_string(config.max_positions));
  }
  CAIRN_ASSIGN_OR_RETURN(ModelSpec spec,
                         DescribeModel(config, settings.checkpoint, settings.tokenizer));
  return Demo(settings, *model, std::move(spec), console, report).Run();
}

}  // namespace cairn::demo
