// SPDX-License-Identifier: Apache-2.0
//
// Property: steps of a plan, run by a real model, are what the plan says. All computed is a full
// prefill, and a prefix is one, bit for bit. Steps from left to right are the same as one pass over
// all computed tokens, each of which sees what stands before it. In the first layer a blended
// prompt is a full prefill; behind it turned keys are nearer to one than keys that stay as they
// were. Method: the shipped model, and a store on the disk.
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "cairn/store.h"
#include "tests/support/status.h"
#include "tests/tools/cli_fixture.h"
#include "tools/demo/cache_view.h"
#include "tools/llama/bf16.h"
#include "tools/llama/model_files.h"
#include "tools/llama/perplexity.h"
#include "tools/llama/tokenizer.h"
#include "tools/llama/transformer.h"

namespace cairn::testing {
namespace {

using llama::KvCache;
using llama::LogitsOf;

constexpr uint16_t kNaN = 0x7FC0;

class BlendModelTest : public CliTest {
 protected:
  static void SetUpTestSuite() {
    std::string error;
    model_ = llama::LoadModel(CAIRN_LLAMA_DATA_DIR "/model.bin",
                              CAIRN_LLAMA_DATA_DIR "/tokenizer.bin", &error);
    ASSERT_TRUE(model_.has_value()) << error;
  }
  static void TearDownTestSuite() { model_.reset(); }

  void SetUp() override {
    CliTest::SetUp();
    store_object_ = OpenStore();
    spec_.identity.name = "llama";
    spec_.groups.push_back(demo::GroupOf(model_->checkpoint.config()));
    ASSERT_OK_ASSIGN(id_, store_object_.RegisterModel(spec_));
    ASSERT_OK(store_object_.SetNamespace("docs", {.index = Index::kChunks}));
    std::string error;
    const auto text = llama::ReadFile(llama::HeldOutTextPath(), &error);
    ASSERT_TRUE(text.has_value()) << error;
    const std::vector<int32_t> all = model_->tokenizer.Encode(*text);
    for (size_t i = 0; i < 3; ++i) {
      const auto first = all.begin() + static_cast<ptrdiff_t>(1 + 200 * i);
      texts_.emplace_back(first, first + 100);
    }
  }

  static KvCache EmptyCache() {
    KvCache cache(model_->checkpoint.config(), 512);
    for (int layer = 0; layer < cache.layers(); ++layer) {
      std::fill_n(cache.K(layer, 0, 0), cache.layer_stride(), kNaN);
      std::fill_n(cache.V(layer, 0, 0), cache.layer_stride(), kNaN);
    }
    return cache;
  }
  using Ids = std::vector<int32_t>;
  template <typename Scalar>
  static std::vector<Scalar> Prefill(const Ids& ids, KvCache* cache) {
    llama::Transformer<Scalar> transformer(model_->checkpoint);
    const auto logits = transformer.Forward(ids, 0, LogitsOf::kLastRow, cache);
    return {logits.begin(), logits.end()};
  }
  static std::vector<TokenId> TokensOf(const Ids& ids) { return {ids.begin(), ids.end()}; }
  void Put(const std::string& name, const Ids& ids) {
    KvCache cache = EmptyCache();
    Prefill<float>(ids, &cache);
    ASSERT_OK_ASSIGN(Branch branch, store_object_.CreateBranch(id_, {.name = name, .ns = "docs"}));
    const demo::CacheView view(&cache, 0, static_cast<int>(ids.size()));
    const std::vector<TokenId> tokens = TokensOf(ids);
    ASSERT_OK(branch.AppendSync({.tokens = tokens, .kv = &view.view()}));
  }
  BlendPlan PlanOf(const Ids& ids, const BlendOptions& options = {}) {
    const std::vector<TokenId> tokens = TokensOf(ids);
    auto plan = store_object_.PlanBlend({.model = id_, .tokens = tokens, .ns = "docs"}, options);
    EXPECT_OK(plan);
    return plan.ok() ? *plan : BlendPlan();
  }
  // Runs the steps; the logits of the last token.
  template <typename Scalar>
  std::vector<Scalar> Run(const Ids& ids, const BlendPlan& plan, KvCache* cache) {
    llama::Transformer<Scalar> transformer(model_->checkpoint);
    std::vector<Scalar> last;
    for (const BlendStep& step : plan.steps) {
      const int begin = static_cast<int>(step.begin), end = static_cast<int>(step.end);
      if (step.loads) {
        Load(plan, begin, end, cache);
        continue;
      }
      const auto logits =
          transformer.Forward(std::span(ids).subspan(step.begin, step.end - step.begin), begin,
                              LogitsOf::kLastRow, cache);
      last.assign(logits.begin(), logits.end());
    }
    return last;
  }
  void Load(const BlendPlan& plan, int begin, int end, KvCache* cache) {
    const demo::CacheView view(cache, begin, end);
    RestoreRequest request;
    request.begin = static_cast<uint64_t>(begin);
    request.end = static_cast<uint64_t>(end);
    request.into = &view.view();
    ASSERT_OK(store_object_.Restore(plan, request));
  }
  static bool SameBits(const KvCache& a, const KvCache& b, int end) {
    for (int layer = 0; layer < a.layers(); ++layer) {
      const size_t bytes = 2 * static_cast<size_t>(end) * a.position_stride();
      if (std::memcmp(a.K(layer, 0, 0), b.K(layer, 0, 0), bytes) != 0 ||
          std::memcmp(a.V(layer, 0, 0), b.V(layer, 0, 0), bytes) != 0) {
        return false;
      }
    }
    return true;
  }
  static bool HasNaN(const KvCache& cache, int end) {
    for (int layer = 0; layer < cache.layers(); ++layer) {
      for (size_t i = 0; i < static_cast<size_t>(end) * cache.position_stride(); ++i) {
        if (std::isnan(llama::FloatFromBf16(cache.K(layer, 0, 0)[i])) ||
            std::isnan(llama::FloatFromBf16(cache.V(layer, 0, 0)[i]))) {
          return true;
        }
      }
    }
    return false;
  }
  static Ids Joined(const std::vector<Ids>& parts) {
    Ids all;
    for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  static inline std::optional<llama::Model> model_;
  Store store_object_;
  ModelSpec spec_;
  ModelId id_{};
  std::vector<Ids> texts_;
};

TEST_F(BlendModelTest, AllComputedIsAFullPrefill) {
  Put("a", texts_[0]);
  const Ids ids = Joined({texts_[2], texts_[0]});
  BlendOptions options;
  options.recompute_ratio = 1.0;
  KvCache full = EmptyCache(), blended = EmptyCache();
  const auto want = Prefill<double>(ids, &full);
  EXPECT_EQ(want, Run<double>(ids, PlanOf(ids, options), &blended));
  EXPECT_TRUE(SameBits(full, blended, 200));
}

TEST_F(BlendModelTest, APrefixIsAFullPrefillBitForBit) {
  Put("a", texts_[0]);
  const Ids ids = Joined({texts_[0], texts_[1]});
  const BlendPlan plan = PlanOf(ids);
  EXPECT_EQ(100u, plan.load_tokens);
  EXPECT_EQ(200u, plan.exact);
  KvCache full = EmptyCache(), blended = EmptyCache();
  const auto want = Prefill<float>(ids, &full);
  EXPECT_EQ(want, Run<float>(ids, plan, &blended));
  EXPECT_TRUE(SameBits(full, blended, 200));
}

TEST_F(BlendModelTest, StepsAreOnePassInWhichEachTokenSeesWhatStandsBeforeIt) {
  Put("a", texts_[0]);
  Put("b", texts_[1]);
  Ids edited = texts_[1];
  ++edited[50];
  const Ids ids =
      Joined({texts_[2], texts_[0], edited, Ids(texts_[2].begin(), texts_[2].begin() + 20)});
  const BlendPlan plan = PlanOf(ids);
  EXPECT_TRUE(plan.positions_checked);
  EXPECT_EQ(2 * (100 - 16 - 2) - 5u, plan.load_tokens);
  KvCache in_steps = EmptyCache(), in_one = EmptyCache();
  const auto want = Run<double>(ids, plan, &in_steps);
  EXPECT_FALSE(HasNaN(in_steps, static_cast<int>(ids.size())))
      << "something was neither loaded nor computed";
  Ids chosen;
  std::vector<int> positions;
  for (const BlendStep& step : plan.steps) {
    if (step.loads) {
      Load(plan, static_cast<int>(step.begin), static_cast<int>(step.end), &in_one);
      continue;
    }
    for (uint64_t at = step.begin; at < step.end; ++at) {
      chosen.push_back(ids[at]);
      positions.push_back(static_cast<int>(at));
    }
  }
  llama::Transformer<double> transformer(model_->checkpoint);
  const auto logits = transformer.ForwardAt(chosen, positions, LogitsOf::kLastRow, &in_one);
  EXPECT_EQ(want, std::vector<double>(logits.begin(), logits.end()));
  EXPECT_TRUE(SameBits(in_steps, in_one, static_cast<int>(ids.size())));
}

TEST_F(BlendModelTest, TheFirstLayerIsThatOfAFullPrefill) {
  Put("a", texts_[0]);
  const Ids ids = Joined({texts_[2], texts_[0], Ids(20, 5)});
  KvCache full = EmptyCache(), blended = EmptyCache();
  Prefill<float>(ids, &full);
  Run<float>(ids, PlanOf(ids), &blended);
  const int head_dim = full.head_dim();
  for (int at = 0; at < static_cast<int>(ids.size()); ++at) {
    for (int head = 0; head < full.kv_heads(); ++head) {
      EXPECT_EQ(0, std::memcmp(full.V(0, at, head), blended.V(0, at, head),
                               2 * static_cast<size_t>(head_dim)));
      for (int i = 0; i < head_dim; i += 2) {
        const auto of = [&](const KvCache& cache, int k) {
          return static_cast<double>(llama::FloatFromBf16(cache.K(0, at, head)[i + k]));
        };
        // Two roundings to bf16 of a pair.
        const double apart = std::hypot(of(full, 0) - of(blended, 0), of(full, 1) - of(blended, 1));
        EXPECT_LE(apart, 0.0117 * std::hypot(of(full, 0), of(full, 1)) + 1e-6);
      }
    }
  }
}

TEST_F(BlendModelTest, TurnedKeysAreNearerToAFullPrefill) {
  Put("a", texts_[0]);
  Put("b", texts_[1]);
  const Ids ids =
      Joined({texts_[2], texts_[1], texts_[0], Ids(texts_[2].begin(), texts_[2].begin() + 20)});
  KvCache full = EmptyCache();
  const auto want = Prefill<float>(ids, &full);
  const auto divergence = [&](const std::function<void(BlendOptions*)>& change) {
    BlendOptions options;
    change(&options);
    KvCache cache = EmptyCache();
    const std::vector<float> got = Run<float>(ids, PlanOf(ids, options), &cache);
    return llama::Divergence(std::span(want), std::span(got));
  };
  const double by_default = divergence([](BlendOptions*) {});
  const double unturned = divergence([](BlendOptions* o) { o->position_correction = false; });
  EXPECT_GT(by_default, 0.0) << "nothing is approximate";
  EXPECT_LT(by_default, unturned);
}

}  // namespace
}  // namespace cairn::testing
