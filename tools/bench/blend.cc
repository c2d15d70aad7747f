// SPDX-License-Identifier: Apache-2.0
//
// blend: the time to the first token of a prompt of six documents, which an earlier process stored,
// in another order each time, and a question. The own model computes it whole; or by the steps of a
// plan (docs/blend.md), with the default options and with 15 % of each document, with everything in
// memory, and with the store opened again and no file of it in the page cache. Plan, restore, turns
// and computation all count.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>

#include "cairn/store.h"
#include "tools/bench/bench.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/demo/cache_view.h"
#include "tools/llama/model_files.h"
#include "tools/llama/perplexity.h"
#include "tools/llama/tokenizer.h"
#include "tools/llama/transformer.h"

namespace cairn::bench {
namespace {

constexpr size_t kDocuments = 6, kDocumentTokens = 256, kQuestionTokens = 96;
constexpr size_t kPromptTokens = kDocuments * kDocumentTokens + kQuestionTokens;
constexpr double kShare = 0.15;

using Ids = std::vector<int32_t>;

class BlendBench {
 public:
  static Result<std::unique_ptr<BlendBench>> Make(std::string path) {
    std::string error;
    auto model =
        llama::LoadModel(llama::DefaultCheckpointPath(), llama::DefaultTokenizerPath(), &error);
    const auto text = llama::ReadFile(llama::HeldOutTextPath(), &error);
    if (!model || !text) return Status(StatusCode::kIoError, error);
    return std::unique_ptr<BlendBench>(new BlendBench(std::move(path), std::move(*model), *text));
  }

  // By a process of its own.
  Status Build() {
    const pid_t child = fork();
    if (child < 0) return Status(StatusCode::kIoError, "fork");
    if (child == 0) _exit(Write().ok() ? 0 : 1);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) {
      return Status(StatusCode::kIoError, "the process that stores the documents failed");
    }
    return Status::Ok();
  }
  Status Open() {
    Options options;
    options.create_if_missing = true;
    CAIRN_ASSIGN_OR_RETURN(store_, Store::Open(path_, options));
    CAIRN_ASSIGN_OR_RETURN(id_, store_.RegisterModel(spec_));
    return Status::Ok();
  }
  Status OpenCold() {
    CAIRN_RETURN_IF_ERROR(store_.Close());
    DropFileCaches(path_);
    return Open();
  }
  Status Close() { return store_.Close(); }
  void Describe(Report* report) const {
    report->Machine("io_backend", store_.io_name());
    report->Machine("sync_method", store_.sync_method());
  }

  void NextPrompt() {
    std::shuffle(documents_.begin(), documents_.end(), random_);
    prompt_.clear();
    for (const Ids& one : documents_) prompt_.insert(prompt_.end(), one.begin(), one.end());
    prompt_.insert(prompt_.end(), question_.begin(), question_.end());
  }
  Status Full() {
    const auto logits = transformer_.Forward(prompt_, 0, llama::LogitsOf::kLastRow, &cache_);
    full_.assign(logits.begin(), logits.end());
    return Status::Ok();
  }
  Status Blended(const BlendOptions& options) {
    const std::vector<TokenId> tokens(prompt_.begin(), prompt_.end());
    CAIRN_ASSIGN_OR_RETURN(
        plan_, store_.PlanBlend({.model = id_, .tokens = tokens, .ns = "documents"}, options));
    for (const BlendStep& step : plan_.steps) {
      if (step.loads) {
        const demo::CacheView into(&cache_, static_cast<int>(step.begin),
                                   static_cast<int>(step.end));
        RestoreRequest request;
        request.begin = step.begin;
        request.end = step.end;
        request.into = &into.view();
        CAIRN_RETURN_IF_ERROR(store_.Restore(plan_, request).status());
        continue;
      }
      const auto logits =
          transformer_.Forward(std::span(prompt_).subspan(step.begin, step.end - step.begin),
                               static_cast<int>(step.begin), llama::LogitsOf::kLastRow, &cache_);
      blended_.assign(logits.begin(), logits.end());
    }
    if (plan_.load_tokens == 0) return Status(StatusCode::kNotFound, "nothing is loaded");
    return Status::Ok();
  }
  const BlendPlan& plan() const { return plan_; }

  // KL of the blended answer to that of the full prefill, of the prompt at hand.
  double Divergence() const {
    return llama::Divergence(std::span<const float>(full_), std::span<const float>(blended_));
  }

 private:
  BlendBench(std::string path, llama::Model model, const std::string& text)
      : path_(std::move(path)),
        model_(std::move(model)),
        transformer_(model_.checkpoint),
        cache_(model_.checkpoint.config(), static_cast<int>(kPromptTokens)) {
    spec_.identity.name = "own model";
    spec_.groups.push_back(demo::GroupOf(model_.checkpoint.config()));
    const Ids all = model_.tokenizer.Encode(text);
    auto next = all.begin() + 1;
    for (size_t i = 0; i < kDocuments; ++i, next += kDocumentTokens) {
      documents_.emplace_back(next, next + kDocumentTokens);
    }
    question_.assign(next, next + kQuestionTokens);
  }

  Status Write() {
    CAIRN_RETURN_IF_ERROR(Open());
    CAIRN_RETURN_IF_ERROR(store_.SetNamespace("documents", {.index = Index::kChunks}));
    for (size_t i = 0; i < kDocuments; ++i) {
      transformer_.Forward(documents_[i], 0, llama::LogitsOf::kNoRow, &cache_);
      const demo::CacheView view(&cache_, 0, kDocumentTokens);
      CAIRN_ASSIGN_OR_RETURN(
          Branch branch,
          store_.CreateBranch(id_, {.name = "document " + std::to_string(i), .ns = "documents"}));
      const std::vector<TokenId> tokens(documents_[i].begin(), documents_[i].end());
      CAIRN_RETURN_IF_ERROR(branch.AppendSync({.tokens = tokens, .kv = &view.view()}).status());
    }
    CAIRN_RETURN_IF_ERROR(store_.Compact());
    return store_.Close();
  }

  const std::string path_;
  llama::Model model_;
  llama::Transformer<float> transformer_;
  llama::KvCache cache_;
  ModelSpec spec_;
  std::vector<Ids> documents_;
  Ids question_, prompt_;
  std::mt19937_64 random_{1};
  Store store_;
  ModelId id_{};
  BlendPlan plan_;
  std::vector<float> full_, blended_;
};

}  // namespace

Status RunBlend(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<BlendBench> bench,
                         BlendBench::Make(scratch + "/store"));
  CAIRN_RETURN_IF_ERROR(bench->Build());
  CAIRN_RETURN_IF_ERROR(bench->Open());
  bench->Describe(report);
  const BlendOptions by_default;
  BlendOptions share;
  share.recompute_first = 0;
  share.recompute_ratio = kShare;
  std::vector<double> divergence;
  const auto next = [&] {
    bench->NextPrompt();
    return Status::Ok();
  };
  const auto next_cold = [&] {
    bench->NextPrompt();
    return bench->OpenCold();
  };
  Arm full{.name = "full"};
  full.prepare = next;
  full.op = [&](double*) { return bench->Full(); };
  Arm blended{.name = "blended"}, of_share{.name = "share"}, cold{.name = "cold"};
  blended.prepare = next;
  blended.op = [&](double*) { return bench->Blended(by_default); };
  of_share.prepare = next;
  of_share.op = [&](double*) { return bench->Blended(share); };
  cold.prepare = next_cold;
  cold.op = [&](double*) { return bench->Blended(by_default); };
  for (Arm* const arm : {&full, &blended, &of_share, &cold}) arm->max_ops_per_block = 1;
  CAIRN_RETURN_IF_ERROR(RunInterleaved(config, "blend", {&full, &blended, &of_share, &cold}));

  for (int i = 0; i < 8; ++i) {
    bench->NextPrompt();
    CAIRN_RETURN_IF_ERROR(bench->Full());
    CAIRN_RETURN_IF_ERROR(bench->Blended(by_default));
    divergence.push_back(bench->Divergence());
  }
  const auto ms = [&](const char* name, const Arm& arm, const char* meaning) {
    report->Value(name, arm.p50_us() / 1000, meaning);
  };
  ms("full_ms_p50", full, "to the first token, all of the prompt computed");
  ms("blended_ms_p50", blended, "by a plan with the default options, in memory");
  ms("share_ms_p50", of_share, "by a plan that computes 15 % of each document");
  ms("cold_ms_p50", cold, "the default options, the store just opened, no file in memory");
  report->Value("load_tokens", static_cast<double>(bench->plan().load_tokens),
                "of 1632 tokens, by default");
  report->Value("divergence_p50", Median(divergence),
                "KL of the answer to that of a full prefill, nats");
  report->AddRatio("full_to_blended", RatioOfP50(full, blended), "higher is better; goal 5");
  report->AddRatio("full_to_share", RatioOfP50(full, of_share), "the same of 15 %; goal 4");
  report->AddRatio("blended_to_cold", RatioOfP50(blended, cold), "higher is better; goal 0.9");
  return bench->Close();
}

}  // namespace cairn::bench
