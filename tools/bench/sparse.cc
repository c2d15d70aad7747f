// SPDX-License-Identifier: Apache-2.0
//
// sparse: the host's cost of sparse attention, beside a GPU that does nothing (idle_device.h):
// calls of a step by layer, making and extending a shadow, opening a session, reading pages. A
// card's cost is not included.
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/codec/float16.h"
#include "cairn/kv_buffer.h"
#include "cairn/shadow_session.h"
#include "tools/bench/fixture.h"
#include "tools/bench/idle_device.h"
#include "tools/bench/machine.h"

namespace cairn::bench {
namespace {

constexpr uint32_t kLayers = 8, kHeads = 8, kChannels = 128, kQueryHeads = 32;
constexpr uint64_t kTokenBytes = uint64_t{kLayers} * kHeads * kChannels * 2 * 2;
constexpr uint64_t kSessionBytes = 512ull << 20;
constexpr uint64_t kPortion = 1024;  // Tokens of an append, and of an extension.
constexpr uint32_t kWarmUp = 50;
constexpr uint32_t kSteps = 400;
constexpr std::chrono::microseconds kPause{50};  // Between looks at what the background does.

class SparseBench {
 public:
  SparseBench(const Config& config, std::string path, Report* report)
      : tokens_((config.session_bytes != 0 ? config.session_bytes : kSessionBytes) / kTokenBytes /
                kPortion * kPortion),
        path_(std::move(path)),
        report_(report) {
    model_.identity.name = "llama-3-8b, 8 layers of it";
    model_.groups = {LayerGroup::FullAttention(kLayers, kHeads, kChannels, Dtype::kBf16)};
  }

  Status Run() {
    if (tokens_ < kPortion) {
      return Status(StatusCode::kInvalidArgument, "--session-bytes: at least 32 MiB");
    }
    CAIRN_RETURN_IF_ERROR(Begin());
    CAIRN_RETURN_IF_ERROR(Shadow());
    CAIRN_RETURN_IF_ERROR(Steps());
    CAIRN_RETURN_IF_ERROR(Fetches());
    CAIRN_RETURN_IF_ERROR(Pages());
    arena_ = {};
    return store_.Close();
  }

 private:
  Status Begin() {
    device_ = MakeIdleDevice();
    gpu_.emplace(device_, 0);
    Options options;
    options.create_if_missing = true;
    options.gpus = {*gpu_};
    CAIRN_ASSIGN_OR_RETURN(store_, OpenStore(path_, options, report_));
    CAIRN_ASSIGN_OR_RETURN(const ModelId id, store_.RegisterModel(model_));
    CAIRN_ASSIGN_OR_RETURN(branch_, store_.CreateBranch(id));
    Progress progress("sparse: KV of " + std::to_string(tokens_) + " tokens", tokens_ / kPortion);
    for (uint64_t at = 0; at < tokens_; at += kPortion) {
      CAIRN_RETURN_IF_ERROR(AppendPortion());
      progress.Step();
    }
    CAIRN_RETURN_IF_ERROR(store_.Compact());
    CAIRN_ASSIGN_OR_RETURN(
        arena_, SparseArena::Make(store_, *gpu_,
                                  {.pinned_bytes = 1ull << 30, .device_bytes = 16ull << 30}));
    report_->Value("tokens", static_cast<double>(tokens_), "of the branch");
    return Status::Ok();
  }

  // Keys and values from -1 to 1, of 13 bits.
  Status AppendPortion() {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    CAIRN_ASSIGN_OR_RETURN(const uint64_t begin, branch_.length());
    KvBuffer kv(model_, begin + kPortion);
    auto* const elements = reinterpret_cast<uint16_t*>(kv.bytes().data());
    uint64_t state = begin + 1;
    for (size_t i = 0; i < kv.bytes().size() / 2; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      elements[i] = ToBf16(static_cast<float>(state >> 51) / 4096.0F - 1.0F);
    }
    const OwnedKvView view = kv.View(begin, begin + kPortion);
    std::vector<TokenId> ids(kPortion);
    for (uint64_t i = 0; i < kPortion; ++i) ids[i] = TokenAt(begin + i);
    return branch_.AppendSync({.tokens = ids, .kv = view}).status();
  }

  // ---------------------------------------------------------------- shadows

  // All of it, to the host.
  Result<double> RestoreSeconds() {
    DropFileCaches(path_);
    KvBuffer kv(model_, tokens_);
    RestoreRequest request;
    request.end = tokens_;
    request.into = kv.view();
    request.require_kv = true;
    const double begin = NowUs();
    CAIRN_RETURN_IF_ERROR(branch_.Restore(request).status());
    return (NowUs() - begin) / 1e6;
  }

  Status Shadow() {
    CAIRN_ASSIGN_OR_RETURN(const double restore_s, RestoreSeconds());
    DropFileCaches(path_);
    const double begin = NowUs();
    const double cpu_before = ProcessCpuSeconds();
    CAIRN_ASSIGN_OR_RETURN(const ShadowInfo made, BuildShadow(branch_));
    const double took_s = (NowUs() - begin) / 1e6;
    const double key_bytes = static_cast<double>(made.covered) * kTokenBytes / 2;
    report_->Value("build_tokens_per_s", static_cast<double>(made.covered) / took_s,
                   "making a shadow, of 8 layers");
    report_->Value("build_gb_per_s", key_bytes / 1e9 / took_s, "of keys");
    report_->Value("build_cpu_s_per_gb", (ProcessCpuSeconds() - cpu_before) / (key_bytes / 1e9),
                   "of keys");
    report_->Value(
        "table_to_kv",
        static_cast<double>(made.table_bytes) / (static_cast<double>(made.tokens) * kTokenBytes),
        "bytes of the shadow's table to those of the KV");
    const double ratio = took_s / restore_s;
    report_->AddRatio("build_to_restore", {ratio, ratio, ratio},
                      "time of it, to restoring the branch to the host");
    CAIRN_RETURN_IF_ERROR(AppendPortion());
    const double longer = NowUs();
    CAIRN_ASSIGN_OR_RETURN(const ShadowInfo more, BuildShadow(branch_));
    report_->Value("build_longer_ms", (NowUs() - longer) / 1e3,
                   "the same of 1024 tokens more, from what there is");
    report_->Value("build_longer_tokens", static_cast<double>(more.tokens_read),
                   "whose keys that read");
    return Status::Ok();
  }

  Status Steps() {
    DropFileCaches(path_);
    const double begin = NowUs();
    CAIRN_ASSIGN_OR_RETURN(
        ShadowSession session,
        ShadowSession::Open(arena_, branch_,
                            {.query_heads = kQueryHeads, .tokens_max = tokens_ + 4 * kPortion}));
    const double opened_s = (NowUs() - begin) / 1e6;
    report_->Value("open_ms", opened_s * 1e3, "opening a session, from its table");
    report_->Value("open_gb_per_s",
                   static_cast<double>(session.info().table_bytes) / 1e9 / opened_s,
                   "of the table");
    const uint64_t full_bytes = session.info().tokens * kTokenBytes;
    report_->Value("device_to_kv",
                   static_cast<double>(session.device_bytes()) / static_cast<double>(full_bytes),
                   "bytes on the device to those of the KV");
    std::vector<double> step_us;
    std::byte queries[16] = {};
    for (uint32_t i = 0; i < kWarmUp + kSteps; ++i) {
      const uint32_t layer = i % kLayers;
      const double started = NowUs();
      CAIRN_RETURN_IF_ERROR(session.Select({.layer = layer, .queries = queries}));
      CAIRN_RETURN_IF_ERROR(session.Rebuild(layer, 0));
      CAIRN_RETURN_IF_ERROR(session.Fetch({.layer = layer}));
      CAIRN_RETURN_IF_ERROR(session.View(layer).status());
      if (i >= kWarmUp) step_us.push_back(NowUs() - started);
    }
    report_->Value("step_us", Median(step_us), "the host's part of a strict step of a layer");
    report_->Value("step_p99_us", Quantile(step_us, 0.99), "the slowest hundredth begins there");
    CAIRN_RETURN_IF_ERROR(AppendPortion());
    const double grown = NowUs();
    CAIRN_RETURN_IF_ERROR(session.Extend());
    report_->Value("extend_ms", (NowUs() - grown) / 1e3,
                   "a session that takes in 1024 tokens more");
    return Status::Ok();
  }

  Status Fetches() {
    CAIRN_ASSIGN_OR_RETURN(SparseSession session, arena_.Open(branch_, {.warm = false}));
    std::vector<uint32_t> pieces(size_t{kHeads} * 512);
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = static_cast<uint32_t>(i % 512);
    for (const SparseMode mode : {SparseMode::kStrict, SparseMode::kRelaxed}) {
      std::vector<double> fetch_us;
      for (uint32_t i = 0; i < kWarmUp + kSteps; ++i) {
        const double started = NowUs();
        CAIRN_RETURN_IF_ERROR(session
                                  .Fetch({.layer = i % kLayers,
                                          .pieces = pieces.data(),
                                          .count = 512,
                                          .stride = 512,
                                          .mode = mode})
                                  .status());
        if (i >= kWarmUp) fetch_us.push_back(NowUs() - started);
      }
      const bool strict = mode == SparseMode::kStrict;
      report_->Value(strict ? "fetch_us" : "fetch_relaxed_us", Median(fetch_us),
                     strict ? "a strict fetch of 512 pieces by head, none of which is missing"
                            : "the same, relaxed");
    }
    return Status::Ok();
  }

  // Prefetches of all pages of a layer after the other, until the arena is full.
  Status Pages() {
    DropFileCaches(path_);
    CAIRN_ASSIGN_OR_RETURN(SparseSession session, arena_.Open(branch_, {.warm = false}));
    const auto pieces_of_page = static_cast<uint32_t>((64 << 10) / (kChannels * 2) / 4);
    const auto pages = static_cast<uint32_t>(session.pieces() / pieces_of_page);
    const double begin = NowUs();
    for (uint32_t page = 0; page < pages; ++page) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        const std::vector<uint32_t> wanted(kHeads, page * pieces_of_page);
        Status noted(StatusCode::kBusy, "");
        while (noted.code() == StatusCode::kBusy) {
          if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
          noted =
              session.Prefetch({.layer = layer, .pieces = wanted.data(), .count = 1, .stride = 1});
          if (!noted.ok()) std::this_thread::sleep_for(kPause);
        }
        CAIRN_RETURN_IF_ERROR(noted);
      }
    }
    const uint64_t wanted = uint64_t{pages} * kLayers * kHeads;
    while (session.stats().pages_read < wanted && !Interrupted()) {
      std::this_thread::sleep_for(kPause);
    }
    const double took_s = (NowUs() - begin) / 1e6;
    report_->Value("pages_gb_per_s",
                   static_cast<double>(session.stats().page_bytes_read) / 1e9 / took_s,
                   "values read into pages, by the background alone");
    return Status::Ok();
  }

  const uint64_t tokens_;
  const std::string path_;
  Report* const report_;
  ModelSpec model_;
  std::shared_ptr<gpu::Device> device_;
  std::optional<Gpu> gpu_;
  Store store_;
  Branch branch_;
  SparseArena arena_;
};

}  // namespace

Status RunSparse(const Config& config, const std::string& scratch, Report* report) {
  return SparseBench(config, scratch + "/store", report).Run();
}

}  // namespace cairn::bench
