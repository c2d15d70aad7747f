// SPDX-License-Identifier: Apache-2.0
//
// shadow-step: a decoder step of Llama 3 8B with sparse attention by a shadow, beside one with full
// attention on the same card.
//
// Measured, by layer: Select, Rebuild and a strict Fetch of one sequence, whose values lie in
// pinned memory. Attention itself, of either kind, is taken as one pass over the rows that it
// reads, at the rate of the card's memory, which a copy in the same run shows: no kernel is faster,
// and a good one is close. Rates of a batch follow: each step reads the weights once, and the rows
// of every sequence; as many sequences as fit beside the weights.
#include <array>
#include <optional>

#include "base/codec/float16.h"
#include "cairn/kv_buffer.h"
#include "cairn/shadow_session.h"
#include "tools/bench/fixture.h"
#include "tools/bench/gpu_bench.h"

namespace cairn::bench {
namespace {

constexpr double kModelLayers = 32;
constexpr double kWeightBytes = 16.06e9;
constexpr double kMemoryShare = 0.9;  // Engines use this part of a card by default.
constexpr uint64_t kPortion = 1024;   // Tokens of an append.
constexpr uint32_t kQuerySets = 16;   // One per step; then from the first again.

// Sizes of the layers that are stored and stepped through; a card's figures are those of four.
struct Shape {
  uint32_t layers, heads, channels, query_heads;
  uint64_t tokens;
};
constexpr Shape kCardShape = {4, 8, 128, 32, 120 << 10};
constexpr Shape kSimulatedShape = {1, 2, 32, 4, 1024};

class ShadowStepBench {
 public:
  ShadowStepBench(GpuBench* bench, std::string path)
      : bench_(*bench),
        shape_(bench->is_simulated() ? kSimulatedShape : kCardShape),
        path_(std::move(path)) {
    model_.identity.name = "llama-3-8b, some layers of it";
    model_.groups = {
        LayerGroup::FullAttention(shape_.layers, shape_.heads, shape_.channels, Dtype::kBf16)};
    model_.groups[0].inv_freq = RotaryFrequencies(shape_.channels, 500'000.0);
  }

  Status Run() {
    CAIRN_RETURN_IF_ERROR(Begin());
    ShadowSpec published = ShadowSpec::Published(shape_.heads * shape_.channels);
    published.budget_tokens =
        static_cast<uint32_t>(std::min<uint64_t>(published.budget_tokens, shape_.tokens / 8));
    std::vector<Arm> arms(3);
    CAIRN_RETURN_IF_ERROR(MakeFull(&arms[0]));
    CAIRN_RETURN_IF_ERROR(MakeSparse("default", {}, &arms[1], &sessions_[0]));
    CAIRN_RETURN_IF_ERROR(MakeSparse("published", published, &arms[2], &sessions_[1]));
    CAIRN_RETURN_IF_ERROR(bench_.Run("shadow-step", &arms));
    Tell(arms);
    sessions_ = {};
    arena_ = {};
    bench_.device().Return(stream_);
    return store_.Close();
  }

 private:
  // The bytes of one position of one layer, keys and values.
  uint64_t LayerRowBytes() const { return uint64_t{shape_.heads} * shape_.channels * 2 * 2; }
  uint64_t FullBytes() const { return shape_.tokens * shape_.layers * LayerRowBytes(); }

  Status Begin() {
    CAIRN_ASSIGN_OR_RETURN(stream_, bench_.device().AdoptStream(0));  // The caller's default one.
    Options options;
    options.create_if_missing = true;
    options.gpus = {bench_.gpu()};
    CAIRN_ASSIGN_OR_RETURN(store_, OpenStore(path_, options, bench_.report()));
    CAIRN_ASSIGN_OR_RETURN(const ModelId id, store_.RegisterModel(model_));
    CAIRN_ASSIGN_OR_RETURN(branch_, store_.CreateBranch(id));
    Progress progress("shadow-step: KV of " + std::to_string(shape_.tokens) + " tokens",
                      shape_.tokens / kPortion);
    for (uint64_t at = 0; at < shape_.tokens; at += kPortion) {
      CAIRN_RETURN_IF_ERROR(AppendPortion(at));
      progress.Step();
    }
    CAIRN_RETURN_IF_ERROR(store_.Compact());
    const uint64_t pinned = std::max<uint64_t>(FullBytes(), 2 << 20);
    CAIRN_ASSIGN_OR_RETURN(
        arena_, SparseArena::Make(store_, bench_.gpu(),
                                  {.pinned_bytes = pinned,
                                   .device_bytes = bench_.device().info().memory_bytes / 2}));
    return MakeQueries();
  }

  Status AppendPortion(uint64_t begin) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    KvBuffer kv(model_, begin + kPortion);
    auto* const elements = reinterpret_cast<uint16_t*>(kv.bytes().data());
    for (size_t i = 0; i < kv.bytes().size() / 2; ++i) elements[i] = ToBf16(Draw());
    const OwnedKvView view = kv.View(begin, begin + kPortion);
    std::vector<TokenId> ids(kPortion);
    for (uint64_t i = 0; i < kPortion; ++i) ids[i] = TokenAt(begin + i);
    return branch_.AppendSync({.tokens = ids, .kv = view}).status();
  }
  // From -1 to 1, of 13 bits.
  float Draw() {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return static_cast<float>(state_ >> 51) / 4096.0F - 1.0F;
  }

  // Nine tenths of each step's are those of the step before, so that much is wanted again.
  Status MakeQueries() {
    const size_t row = size_t{shape_.layers} * shape_.query_heads * shape_.channels;
    std::vector<float> now(row);
    for (float& element : now) element = Draw();
    std::vector<uint16_t> all;
    for (uint32_t set = 0; set < kQuerySets; ++set) {
      for (float& element : now) element = 0.9F * element + 0.1F * Draw();
      for (const float element : now) all.push_back(ToBf16(element));
    }
    CAIRN_ASSIGN_OR_RETURN(queries_, bench_.PutAll(all));
    return Status::Ok();
  }
  const uint16_t* QueriesOf(uint64_t step, uint32_t layer) const {
    const size_t of_layer = size_t{shape_.query_heads} * shape_.channels;
    return queries_ + (step % kQuerySets * shape_.layers + layer) * of_layer;
  }

  // A copy of half as many bytes, which reads and writes together what attention reads.
  Status Pass(uint64_t bytes) {
    const gpu::CopyPiece piece{pass_ + bytes / 2, pass_, bytes / 2};
    return bench_.device().Copy(stream_, {&piece, 1});
  }

  Status MakeFull(Arm* arm) {
    const uint64_t layer_bytes = shape_.tokens * LayerRowBytes();
    CAIRN_ASSIGN_OR_RETURN(pass_, bench_.Allocate(gpu::Memory::kDevice, layer_bytes));
    arm->name = "full";
    arm->bytes_per_op = FullBytes();
    arm->op = [this, layer_bytes](double*) {
      for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
        CAIRN_RETURN_IF_ERROR(Pass(layer_bytes));
      }
      return bench_.Finish(stream_);
    };
    return Status::Ok();
  }

  Status MakeSparse(const std::string& name, const ShadowSpec& spec, Arm* arm,
                    ShadowSession* session) {
    CAIRN_ASSIGN_OR_RETURN(
        *session,
        ShadowSession::Open(arena_, branch_, {.spec = spec, .query_heads = shape_.query_heads}));
    arm->name = name;
    arm->op = [this, session, chunk = spec.chunk_tokens, step = uint64_t{0}](double*) mutable {
      for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
        CAIRN_RETURN_IF_ERROR(session->Select({.layer = layer, .queries = QueriesOf(step, layer)}));
        CAIRN_RETURN_IF_ERROR(session->Rebuild(layer, /*stream=*/0));
        CAIRN_RETURN_IF_ERROR(session->Fetch({.layer = layer}));
        CAIRN_ASSIGN_OR_RETURN(const ShadowView view, session->View(layer));
        const uint64_t attended = view.resident_tokens + uint64_t{view.count} * chunk;
        CAIRN_RETURN_IF_ERROR(Pass(attended * LayerRowBytes()));
      }
      ++step;
      return bench_.Finish(stream_);
    };
    return Status::Ok();
  }

  // Extrapolates to all layers of the model.
  double TokensPerSecond(double step_us, double sequence_bytes, double memory_rate) const {
    const double room =
        static_cast<double>(bench_.device().info().memory_bytes) * kMemoryShare - kWeightBytes;
    const double batch = std::max(1.0, room / sequence_bytes);
    return batch / (kWeightBytes / memory_rate + batch * step_us * 1e-6);
  }

  void Tell(const std::vector<Arm>& arms) {
    const double scale = kModelLayers / shape_.layers;
    const double memory_rate = arms[0].gb_per_s() * 1e9;
    const double full_bytes = static_cast<double>(FullBytes()) * scale;
    const double full_rate = TokensPerSecond(arms[0].p50_us() * scale, full_bytes, memory_rate);
    bench_.Value("tokens", static_cast<double>(shape_.tokens), "of the context");
    bench_.Value("memory_gb_per_s", memory_rate / 1e9, "of the card, read and written");
    bench_.Value("full_step_us", arms[0].p50_us() * scale, "attention of 32 layers, one sequence");
    bench_.Value("full_tokens_per_s", full_rate, "at its own best batch");
    for (size_t i = 0; i < sessions_.size(); ++i) {
      const Arm& arm = arms[i + 1];
      const double bytes = static_cast<double>(sessions_[i].device_bytes()) * scale;
      const double rate = TokensPerSecond(arm.p50_us() * scale, bytes, memory_rate);
      bench_.Value(arm.name + "_step_us", arm.p50_us() * scale, "the same, sparse");
      bench_.Value(arm.name + "_tokens_per_s", rate, "at its own best batch");
      bench_.Value(arm.name + "_memory_to_full", bytes / full_bytes, "on the card, of a sequence");
      bench_.AddRatio(arm.name + "_step_to_full", RatioOfP50(arm, arms[0]), "time of a step");
      const double gain = rate / full_rate;
      bench_.AddRatio(arm.name + "_rate_to_full", {gain, gain, gain}, "tokens a second");
    }
  }

  GpuBench& bench_;
  const Shape shape_;
  const std::string path_;
  ModelSpec model_;
  Store store_;
  Branch branch_;
  SparseArena arena_;
  std::array<ShadowSession, 2> sessions_;
  const uint16_t* queries_ = nullptr;
  std::byte* pass_ = nullptr;
  gpu::Stream stream_{};
  uint64_t state_ = 1;
};

}  // namespace

Status BenchShadowStep(GpuBench& bench, const std::string& scratch) {
  return ShadowStepBench(&bench, scratch + "/store").Run();
}

Status RunShadowStep(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const auto bench, GpuBench::Open(config, report));
  return BenchShadowStep(*bench, scratch);
}

}  // namespace cairn::bench
