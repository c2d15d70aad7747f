// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/shadow_steps.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/codec/float16.h"
#include "base/core/check.h"
#include "cairn/kv_buffer.h"
#include "cairn/rotary.h"
#include "cairn/shadow_session.h"
#include "gpu/sim_device.h"
#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "tests/engine/shadow_oracle.h"

namespace cairn::sim {
namespace {

constexpr uint32_t kOrdinal = 3;
constexpr uint32_t kLayers = 2, kHeads = 2, kChannels = 8, kGroup = 2, kRowBytes = 16;
constexpr uint64_t kTokensMax = 2600;
constexpr uint32_t kClients = 2;
constexpr int kStepsOfClient = 8, kChanges = 10;

using Content = std::map<uint64_t, uint64_t>;  // The seed of the KV from each position on.

class Run {
 public:
  explicit Run(const ShadowStepsOptions& options)
      : options_(options), random_(options.seed), machine_(io::MakeSimWorld(options.seed)) {
    model_.identity.name = "shadow";
    model_.groups = {LayerGroup::FullAttention(kLayers, kHeads, kChannels, Dtype::kBf16)};
    model_.groups[0].inv_freq = RotaryFrequencies(kChannels, 10'000.0);
    for (ShadowSpec& spec : specs_) spec = DrawSpec(&random_);
  }

  ShadowStepsResult All() {
    StartDevice();
    Begin();
    {
      std::vector<std::unique_ptr<io::Thread>> clients;
      for (uint32_t i = 0; i < kClients; ++i) {
        clients.push_back(machine_.scheduler->StartThread(
            "client", [this, seed = random_.Next()] { Client(seed); }));
      }
      for (int i = 0; i < kChanges && result_.violation.empty(); ++i) Change();
    }
    Mend();
    if (result_.violation.empty()) LosePower();
    if (result_.violation.empty()) AtRest();
    End();
    return std::move(result_);
  }

 private:
  struct Known {
    Branch branch;
    std::string name;
    Content content;
    uint64_t length = 0;
  };

  void Fail(const std::string& what) {
    if (result_.violation.empty()) result_.violation = what;
  }

  // ---------------------------------------------------------------- the store

  void StartDevice() {
    constexpr std::array<uint32_t, 5> kKinds = {0, gpu::kFailCopy, gpu::kFailLaunch,
                                                gpu::kFailEvent, gpu::kFailAny};
    gpu::SimDeviceOptions device{.seed = random_.Next()};
    device.fail_kinds = kKinds[random_.Below(kKinds.size())];
    device.fail_at = UINT64_MAX;
    device.fail_lost = random_.Below(4) == 0;
    device_ = gpu::MakeSimDevice(machine_.scheduler, device);
    gpu_.emplace(device_, kOrdinal);
  }
  void Open() {
    Options options = testing::TinyOptions();
    options.segment_bytes = 4 << 20;
    options.world = std::make_shared<io::World>(machine_.world());
    options.gpus = {*gpu_};
    auto opened = Store::Open("/store", options);
    if (!opened.ok()) return Fail("open: " + opened.status().ToString());
    store_ = std::move(*opened);
    const auto arena =
        SparseArena::Make(store_, *gpu_, {.pinned_bytes = 2 << 20, .device_bytes = 4 << 20});
    CAIRN_CHECK(arena.ok());
    arena_ = *arena;
  }
  void Begin() {
    Open();
    const auto model = store_.RegisterModel(model_, Durability::kPower);
    CAIRN_CHECK(model.ok());
    auto made = store_.CreateBranch(*model, {.name = "0"});
    CAIRN_CHECK(made.ok());
    branches_.push_back({.branch = *made, .name = "0", .content = {}, .length = 0});
    Append(&branches_[0], 200 + random_.Below(1200));
    if (random_.Below(2) == 0) CAIRN_CHECK(store_.Compact().ok());
  }
  void End() {
    arena_ = {};
    branches_.clear();
    const Status closed = store_.Close();
    if (!closed.ok()) Fail("close: " + closed.ToString());
  }
  // Content acknowledged as durable survives, and a shadow that survives is right.
  void LosePower() {
    End();
    machine_.disk = machine_.disk->CrashClone(io::CrashChoice::LoseAll());
    StartDevice();
    Open();
    const auto all = store_.ListBranches({}, {}, 1000);
    CAIRN_CHECK(all.ok());
    if (all->branches.size() != lasting_.size()) return Fail("not as many branches as there were");
    for (const BranchInfo& info : all->branches) {
      const auto known = lasting_.find(info.name);
      if (known == lasting_.end()) return Fail("a branch that was dropped is there");
      auto branch = store_.GetBranch(info.id);
      CAIRN_CHECK(branch.ok());
      branches_.push_back(known->second);
      branches_.back().branch = *branch;
    }
    disk_struck_ = device_struck_ = drops_ = false;
    at_rest_ = true;
  }
  void AtRest() {
    const auto stream = device_->NewStream(gpu::Priority::kHigh);
    CAIRN_CHECK(stream.ok());
    for (int i = 0; i < 3 && result_.violation.empty() && !branches_.empty(); ++i) {
      auto session = OpenSession(&random_, *stream);
      if (session == nullptr) continue;
      Step(&random_, session.get());
      ++result_.after_power;
    }
    device_->Return(*stream);
  }

  // ---------------------------------------------------------------- content

  // Any element, of a seed and where it lies: from -2 to 2.
  static uint16_t Element(uint64_t seed, uint64_t at) {
    uint64_t x = seed * 0x9E3779B97F4A7C15 + at * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 31) * 0x94D049BB133111EB;
    return ToBf16(static_cast<float>(x >> 54) / 256.0F - 2.0F);
  }
  static std::vector<uint16_t> Rows(const Content& content, uint32_t layer, uint32_t plane,
                                    uint32_t head, uint64_t begin, uint64_t end) {
    std::vector<uint16_t> rows;
    for (uint64_t position = begin; position < end; ++position) {
      const uint64_t seed = std::prev(content.upper_bound(position))->second;
      for (uint32_t c = 0; c < kChannels; ++c) {
        rows.push_back(Element(
            seed, (((position * kLayers + layer) * 2 + plane) * kHeads + head) * kChannels + c));
      }
    }
    return rows;
  }

  void Append(Known* known, uint64_t wanted) {
    const uint64_t count = std::min(wanted, kTokensMax - known->length);
    if (count == 0) return;
    const uint64_t begin = known->length, end = begin + count, seed = ++next_seed_;
    const Content content{{0, seed}};
    KvBuffer kv(model_, end);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t plane = 0; plane < 2; ++plane) {
        for (uint32_t head = 0; head < kHeads; ++head) {
          const std::vector<uint16_t> rows = Rows(content, layer, plane, head, begin, end);
          for (uint64_t p = begin; p < end; ++p) {
            std::memcpy(kv.Row(0, layer, plane, head, p).data(), &rows[(p - begin) * kChannels],
                        kRowBytes);
          }
        }
      }
    }
    const OwnedKvView view = kv.View(begin, end);
    const std::vector<TokenId> tokens(count, 7);
    const auto appended = known->branch.AppendSync({.tokens = tokens, .kv = view},
                                                   {.durability = Durability::kPower});
    if (!appended.ok()) return Allow(appended.status(), "append");
    known->content[begin] = seed;
    known->length = end;
    Remember(*known);
  }
  // All of it survives.
  void Remember(const Known& known) {
    Known& lasting = lasting_[known.name];
    lasting = known;
    lasting.branch = {};
  }

  // ---------------------------------------------------------------- what changes meanwhile

  void Change() {
    machine_.scheduler->Sleep(uint64_t{1} << random_.Below(22));
    ++changes_;
    ChangeNow();
    ++changes_;
  }
  void ChangeNow() {
    Known& known = branches_[random_.Below(branches_.size())];
    switch (random_.Below(9)) {
      case 0:
      case 1: return Append(&known, 1 + random_.Below(1200));
      case 2: return Fork(known);
      case 3: return Rewind(&known);
      case 4: return Drop(&known);
      case 5: {
        const Status compacted = store_.Compact();
        return Allow(compacted, "compact");
      }
      case 6: return StrikeDisk();
      case 7: return Mend();
      default: {
        device_struck_ = true;
        return device_->FailAt(device_->calls() + random_.Below(uint64_t{1} << random_.Below(8)));
      }
    }
  }
  void Fork(const Known& from) {
    const uint64_t at = 100 + random_.Below(from.length - 100);
    Known made{
        .branch = {}, .name = std::to_string(++next_name_), .content = from.content, .length = at};
    auto fork = from.branch.ForkAt(at, {.name = made.name});
    if (!fork.ok()) return Allow(fork.status(), "fork");
    made.branch = *fork;
    made.content.erase(made.content.lower_bound(at), made.content.end());
    branches_.push_back(std::move(made));
    Append(&branches_.back(), 1 + random_.Below(300));
  }
  void Rewind(Known* known) {
    const uint64_t to = 100 + random_.Below(known->length - 100);
    drops_ = true;  // It may leave a node that nobody else needs.
    const Status rewound = known->branch.Rewind(to, Durability::kPower);
    if (!rewound.ok()) return Allow(rewound, "rewind");
    known->content.erase(known->content.lower_bound(to), known->content.end());
    known->length = to;
    Remember(*known);
    Append(known, 1 + random_.Below(300));
  }
  void Drop(Known* known) {
    if (branches_.size() < 2) return;
    drops_ = true;
    const Status dropped = known->branch.Drop(Durability::kPower);
    if (!dropped.ok()) return Allow(dropped, "drop");
    lasting_.erase(known->name);
    branches_.erase(branches_.begin() + (known - branches_.data()));
  }
  // Reads of tables and log fail, or tables are damaged where they lie, now and then.
  void StrikeDisk() {
    disk_struck_ = true;
    io::SimFault fault;
    fault.persistent = random_.Below(2) == 0;
    fault.error = EIO;
    fault.when = [this](const io::SimOperation& of) {
      return of.op == io::SimOp::kRead && random_.Below(3) == 0;
    };
    machine_.disk->AddFault(std::move(fault));
  }
  void Mend() {
    machine_.disk->ClearFaults();
    device_->FailAt(UINT64_MAX);
  }

  // ---------------------------------------------------------------- clients

  struct Session {
    ShadowSession session;
    ShadowSpec spec;
    Content content;
    uint64_t length = 0;
    BranchId id{};
    gpu::Stream stream{};
    std::byte* queries = nullptr;
    const Gpu* gpu = nullptr;
    ~Session() {
      session = {};
      if (queries != nullptr) gpu->Free(queries);
    }
  };

  static ShadowSpec DrawSpec(SeededRandom* random) {
    constexpr std::array<ShadowKeys, 4> kKeys = {ShadowKeys::kInt4, ShadowKeys::kInt8,
                                                 ShadowKeys::kExact, ShadowKeys::kLowRank};
    ShadowSpec spec;
    spec.keys = kKeys[random->Below(4)];
    // All directions: what comes back is near to what is stored, whatever vectors a longer table
    // took over.
    if (spec.keys == ShadowKeys::kLowRank && random->Below(2) == 0) {
      spec.rank = kHeads * kChannels;
    } else if (spec.keys == ShadowKeys::kLowRank) {
      spec.rank_energy = 1;
    }
    spec.chunk_tokens = spec.keys == ShadowKeys::kExact ? 4 : 2u << random->Below(3);
    spec.landmark_bits = 4u << random->Below(3);
    return spec;
  }

  std::unique_ptr<Session> OpenSession(SeededRandom* random, gpu::Stream stream) {
    const Known known = branches_[random->Below(branches_.size())];
    auto session = std::make_unique<Session>();
    session->content = known.content;
    session->length = known.length;
    session->id = known.branch.id();
    session->spec = specs_[random->Below(specs_.size())];
    session->spec.budget_tokens = 32 * static_cast<uint32_t>(random->Below(3));
    session->stream = stream;
    session->gpu = &*gpu_;
    const uint64_t changes = changes_;
    if (random->Below(8) == 0) {
      const Status dropped = DropShadow(known.branch, {.spec = session->spec});
      if (dropped.code() != StatusCode::kNotFound) Allow(dropped, "drop of a shadow");
    }
    const uint64_t tokens_max = random->Below(2) * kTokensMax;
    auto opened = ShadowSession::Open(
        arena_, known.branch,
        {.spec = session->spec, .query_heads = kHeads * kGroup, .tokens_max = tokens_max});
    // A branch that changes meanwhile: it is not known what it was.
    if (!opened.ok() || changes % 2 != 0 || changes_ != changes) {
      Allow(opened.status(), "open");
      return nullptr;
    }
    session->session = *opened;
    ++result_.opened;
    const ShadowInfo info = opened->info();
    result_.made += info.tokens_read != 0;
    result_.extended += info.tokens_read != 0 && info.tokens_read < info.covered;
    auto queries = gpu_->Allocate(kHeads * kGroup * kChannels * sizeof(float));
    if (!queries.ok()) return nullptr;
    session->queries = *queries;
    return session;
  }

  void Client(uint64_t seed) {
    SeededRandom random(seed);
    const auto stream = device_->NewStream(gpu::Priority::kHigh);
    if (!stream.ok()) return;
    std::unique_ptr<Session> session;
    for (int i = 0; i < kStepsOfClient && result_.violation.empty(); ++i) {
      machine_.scheduler->Sleep(uint64_t{1} << random.Below(20));
      if (session == nullptr || random.Below(4) == 0) {
        session = nullptr;
        session = OpenSession(&random, *stream);
      }
      if (session != nullptr && random.Below(2) == 0 && !Extend(session.get())) session = nullptr;
      if (session != nullptr) Step(&random, session.get());
    }
    session = nullptr;
    device_->Return(*stream);
  }

  // False: it is of no use any more, or it is not known what it has.
  bool Extend(Session* session) {
    const auto known = std::find_if(branches_.begin(), branches_.end(), [&](const Known& one) {
      return one.branch.id() == session->id;
    });
    if (known == branches_.end()) return true;
    const Known now = *known;
    const uint64_t changes = changes_;
    const Status extended = session->session.Extend();
    if (changes % 2 != 0 || changes_ != changes) return false;
    if (extended.ok()) {
      session->content = now.content;
      session->length = now.length;
      ++result_.grown;
      result_.grown_low_rank += session->spec.keys == ShadowKeys::kLowRank;
      return true;
    }
    // A share of the energy needs more vectors than there is room for: it is as it was.
    if (extended.code() == StatusCode::kInvalidState && session->spec.rank_energy != 0 &&
        extended.message().find("open another session") != std::string::npos) {
      return true;
    }
    // It was rewound since, or there is no room for it.
    if (extended.code() == StatusCode::kConflict ||
        extended.code() == StatusCode::kInvalidArgument) {
      return true;
    }
    Allow(extended, "extend");
    return false;
  }

  void Step(SeededRandom* random, Session* session) {
    std::vector<float> queries(kHeads * kGroup * kChannels);
    for (float& q : queries) q = static_cast<float>(random->Below(2001)) / 500.0F - 2.0F;
    const auto layer = static_cast<uint32_t>(random->Below(kLayers));
    const uintptr_t stream = gpu::SimDevice::HandleOf(session->stream);
    if (!gpu_->CopyIn(session->queries, reinterpret_cast<const std::byte*>(queries.data()),
                      queries.size() * sizeof(float))
             .ok()) {
      return;
    }
    ShadowSession& of = session->session;
    Status status = of.Select({.layer = layer,
                               .queries = session->queries,
                               .is_fp32 = true,
                               .scale = 0.5F,
                               .stream = stream});
    if (status.ok()) status = of.Rebuild(layer, stream);
    if (status.ok()) status = of.Fetch({.layer = layer, .stream = stream});
    if (!status.ok()) return Allow(status, "step");
    const auto view = of.View(layer);
    if (!view.ok()) return Fail("view: " + view.status().ToString());
    const auto event = device_->NewEvent();
    if (!event.ok()) return;
    if (device_->Record(session->stream, *event).ok() &&
        device_->Wait(*event, io::kNoDeadline).ok()) {
      ++result_.steps;
      for (uint32_t head = 0; head < kHeads && result_.violation.empty(); ++head) {
        Compare(*view, *session, layer, head, queries);
      }
    }
    device_->Return(*event);
  }

  void Compare(const ShadowView& view, const Session& session, uint32_t layer, uint32_t head,
               std::span<const float> queries) {
    const auto rows = [&](uint32_t plane, uint64_t begin, uint64_t end) {
      return Rows(session.content, layer, plane, head, begin, end);
    };
    const testing::ShadowOracle oracle(session.spec, false, kChannels, rows(0, 0, session.length));
    const auto chosen =
        oracle.plan.budget_chunks == 0
            ? std::vector<uint32_t>()
            : oracle.Select(queries.subspan(head * kGroup * kChannels, kGroup * kChannels), 0.5F);
    if (view.count != chosen.size()) return Fail("not as many chunks as there should be");
    const uint32_t tokens = session.spec.chunk_tokens;
    for (uint32_t i = 0; i < view.count; ++i) {
      const size_t at = head * view.stride + i;
      if (view.chunks[at] != chosen[i]) return Fail("another chunk is chosen");
      const auto in_slot = [&](const SparseView::PlaneSlots& slots, int32_t slot) {
        return slots.base + head * slots.head_stride +
               static_cast<uint64_t>(slot) * slots.piece_bytes;
      };
      const std::byte* const keys = in_slot(view.keys, view.key_slot_of[at]);
      const std::byte* const values = in_slot(view.values, view.value_slot_of[at]);
      if (options_.wrong_byte) const_cast<std::byte*>(keys)[3] ^= std::byte{1};
      const uint64_t first = uint64_t{chosen[i]} * tokens;
      const std::vector<uint16_t> value_rows = rows(1, first, first + tokens);
      if (session.spec.keys == ShadowKeys::kLowRank) {
        if (!AreNear(keys, rows(0, first, first + tokens))) return Fail("keys that are not near");
        ++result_.low_rank;
      } else {
        const std::vector<uint16_t> key_rows = oracle.Keys(chosen[i]);
        if (std::memcmp(keys, key_rows.data(), key_rows.size() * 2) != 0) return Fail("other keys");
      }
      if (std::memcmp(values, value_rows.data(), value_rows.size() * 2) != 0) {
        return Fail("other values");
      }
      ++result_.chunks;
    }
    CompareNewest(view, oracle, head, session.length, rows(0, oracle.plan.covered, session.length),
                  rows(1, oracle.plan.covered, session.length));
  }
  // Vectors and coefficients have 8 bits of mantissa each; elements are at most 2.
  static bool AreNear(const std::byte* got, std::span<const uint16_t> want) {
    for (size_t i = 0; i < want.size(); ++i) {
      uint16_t x = 0;
      std::memcpy(&x, got + i * sizeof(x), sizeof(x));
      if (!(std::abs(Widened(false, x) - Widened(false, want[i])) <= 0.15F)) return false;
    }
    return true;
  }
  void CompareNewest(const ShadowView& view, const testing::ShadowOracle& oracle, uint32_t head,
                     uint64_t length, const std::vector<uint16_t>& keys,
                     const std::vector<uint16_t>& values) {
    const uint64_t before =
        uint64_t{oracle.plan.sink_chunks + oracle.plan.outlier_chunks} * oracle.spec.chunk_tokens;
    if (view.resident_tokens != before + (length - oracle.plan.covered)) {
      return Fail("not as many tokens are always attended to as should be");
    }
    const std::byte* const at_keys =
        view.resident_keys + head * view.resident_key_stride + before * kRowBytes;
    const std::byte* const at_values =
        view.resident_values + head * view.resident_value_stride + before * kRowBytes;
    if (std::memcmp(at_keys, keys.data(), keys.size() * 2) != 0) return Fail("other newest keys");
    if (std::memcmp(at_values, values.data(), values.size() * 2) != 0) {
      return Fail("other newest values");
    }
  }

  // The errors that may end a call, given the faults.
  void Allow(const Status& status, const char* call) {
    if (status.ok()) return;
    ++result_.failed;
    switch (status.code()) {
      case StatusCode::kNotFound:
      case StatusCode::kConflict:
        ++result_.dropped;
        // Two clients drop and make the same one.
        if (drops_ || !at_rest_) return;
        break;
      case StatusCode::kIoError:
      case StatusCode::kCorruption:
        if (disk_struck_ || device_struck_) return;
        break;
      case StatusCode::kOutOfMemory:
        if (device_struck_ || status.message().find("are left") != std::string::npos) return;
        break;
      default: break;
    }
    Fail(std::string(call) + ": " + status.ToString());
  }

  const ShadowStepsOptions options_;
  SeededRandom random_;
  io::SimWorld machine_;
  ModelSpec model_;
  std::array<ShadowSpec, 2>
      specs_;  // So few that sessions find tables of others, and lengthen them.
  std::shared_ptr<gpu::SimDevice> device_;
  std::optional<Gpu> gpu_;
  Store store_;
  SparseArena arena_;
  std::vector<Known> branches_;
  std::map<std::string, Known> lasting_;
  uint64_t next_seed_ = 0, next_name_ = 0, changes_ = 0;
  bool disk_struck_ = false, device_struck_ = false, at_rest_ = false;
  bool drops_ = false;  // Something may have lost the last branch that needed it.
  ShadowStepsResult result_;
};

}  // namespace

void ShadowStepsResult::Add(const ShadowStepsResult& other) {
  opened += other.opened;
  made += other.made;
  extended += other.extended;
  grown += other.grown;
  grown_low_rank += other.grown_low_rank;
  steps += other.steps;
  chunks += other.chunks;
  low_rank += other.low_rank;
  failed += other.failed;
  dropped += other.dropped;
  after_power += other.after_power;
  if (violation.empty()) violation = other.violation;
}

std::string ShadowStepsResult::Counts() const {
  return "sessions " + std::to_string(opened) + ", shadows made " + std::to_string(made) +
         ", of these longer ones " + std::to_string(extended) + "; sessions that grew " +
         std::to_string(grown) + ", of these of low rank " + std::to_string(grown_low_rank) +
         "; steps " + std::to_string(steps) + ", chunks " + std::to_string(chunks) +
         ", of these of low rank " + std::to_string(low_rank) + "; failed " +
         std::to_string(failed) + ", of these gone " + std::to_string(dropped) +
         "; steps after power came back " + std::to_string(after_power);
}

ShadowStepsResult RunShadowSteps(const ShadowStepsOptions& options) { return Run(options).All(); }

}  // namespace cairn::sim
