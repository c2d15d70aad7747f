// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sparse_fetches.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "gpu/sim_device.h"
#include "sim/world.h"
#include "tests/engine/sparse_kv.h"

namespace cairn::sim {
namespace {

using testing::Content;

constexpr uint32_t kOrdinal = 3;
constexpr uint64_t kPinnedBytes = 1 << 20;  // Sixteen pages.
constexpr uint64_t kDeviceBytes = 1 << 20;
constexpr uint64_t kTokensMax = 600;
constexpr uint32_t kClients = 3;
constexpr int kFetchesOfClient = 14, kChanges = 12;

class Run {
 public:
  explicit Run(const SparseFetchesOptions& options)
      : options_(options), random_(options.seed), machine_(io::MakeSimWorld(options.seed)) {}

  SparseFetchesResult All() {
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
    if (result_.violation.empty() && device_->lost().ok()) AtRest();
    const SparseStats stats = arena_.stats();
    result_.pages_read = stats.pages_read;
    result_.faults = stats.faults;
    arena_ = {};
    branches_.clear();
    const Status closed = store_.Close();
    if (!closed.ok()) Fail("close: " + closed.ToString());
    return std::move(result_);
  }

 private:
  struct Known {
    Branch branch;
    Content content;
    uint64_t length = 0;
  };

  void Fail(const std::string& what) {
    if (result_.violation.empty()) result_.violation = what;
  }

  void Begin() {
    constexpr std::array<uint32_t, 5> kKinds = {0, gpu::kFailCopy, gpu::kFailLaunch,
                                                gpu::kFailEvent, gpu::kFailAny};
    gpu::SimDeviceOptions device{.seed = random_.Next()};
    device.fail_kinds = kKinds[random_.Below(kKinds.size())];
    device.fail_at = UINT64_MAX;
    device.fail_lost = random_.Below(4) == 0;
    device_ = gpu::MakeSimDevice(machine_.scheduler, device);
    Options options = testing::TinyOptions();
    options.segment_bytes = 4 << 20;
    options.world = std::make_shared<io::World>(machine_.world());
    options.gpus = {Gpu(device_, kOrdinal)};
    auto opened = Store::Open("/store", options);
    CAIRN_CHECK(opened.ok());
    store_ = std::move(*opened);
    const auto model = store_.RegisterModel(model_);
    CAIRN_CHECK(model.ok());
    auto made = store_.CreateBranch(*model, {});
    CAIRN_CHECK(made.ok());
    branches_.push_back({.branch = *made, .content = {}, .length = 0});
    Append(&branches_[0], 100 + random_.Below(300));
    if (random_.Below(2) == 0) CAIRN_CHECK(store_.Compact().ok());
    const auto arena = SparseArena::Make(
        store_, options.gpus[0], {.pinned_bytes = kPinnedBytes, .device_bytes = kDeviceBytes});
    CAIRN_CHECK(arena.ok());
    arena_ = *arena;
  }

  void Append(Known* known, uint64_t wanted) {
    const uint64_t count = std::min(wanted, kTokensMax - known->length);
    if (count == 0) return;
    const uint64_t seed = 1000 + next_seed_++;
    const auto appended = testing::AppendSome(known->branch, model_, known->length, count, seed);
    if (!appended.ok()) return Fail("append: " + appended.status().ToString());
    known->content[known->length] = seed;
    known->length += count;
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
      case 0: return Append(&known, 1 + random_.Below(kTokensMax));
      case 1: {
        const uint64_t at = 64 + random_.Below(known.length - 64);
        auto fork = known.branch.ForkAt(at, {});
        if (!fork.ok()) return Fail("fork: " + fork.status().ToString());
        Known made{.branch = *fork, .content = known.content, .length = at};
        made.content.erase(made.content.lower_bound(at), made.content.end());
        branches_.push_back(std::move(made));
        return Append(&branches_.back(), 1 + random_.Below(100));
      }
      case 2: {
        const uint64_t to = 64 + random_.Below(known.length - 64);
        drops_ = true;  // It may leave a node that nobody else needs.
        const Status rewound = known.branch.Rewind(to);
        if (!rewound.ok()) return Fail("rewind: " + rewound.ToString());
        known.content.erase(known.content.lower_bound(to), known.content.end());
        known.length = to;
        return Append(&known, 1 + random_.Below(60));
      }
      case 3:
      case 4: {
        if (branches_.size() < 2) return;
        drops_ = true;
        const Status dropped = known.branch.Drop();
        if (!dropped.ok()) return Fail("drop: " + dropped.ToString());
        branches_.erase(branches_.begin() + (&known - branches_.data()));
        return;
      }
      case 5: {
        const Status compacted = store_.Compact();
        if (!compacted.ok() && !disk_struck_) Fail("compact: " + compacted.ToString());
        return;
      }
      case 6: return StrikeDisk();
      case 7: return Mend();
      default: {
        device_struck_ = true;
        return device_->FailAt(device_->calls() + random_.Below(uint64_t{1} << random_.Below(8)));
      }
    }
  }
  // Reads of tables and log fail now and then.
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
    SparseSession session;
    SparseOptions options;
    Content content;
    gpu::Stream stream{};
    std::vector<uint32_t> pieces;  // Both heads'.
    BranchId id{};
    // A fetch that is captured, and where a replay finds its pieces.
    uint64_t graph = 0;
    SparseWanted captured{};
    SparseView view{};
    std::byte* at = nullptr;
  };
  // Frees what it had beside the session.
  struct SessionEnd {
    gpu::Device* device = nullptr;
    void operator()(Session* session) const {
      session->session = {};
      if (session->at != nullptr) device->Free(session->at);
      delete session;
    }
  };

  Status Open(SeededRandom* random, Session* session) {
    const Known known = branches_[random->Below(branches_.size())];
    session->content = known.content;
    SparseOptions& options = session->options;
    options.planes = 1 + static_cast<uint32_t>(random->Below(3));
    options.piece_tokens = 1u << random->Below(4);
    options.page_tokens = options.piece_tokens * (1 + static_cast<uint32_t>(random->Below(9)));
    options.slots = 1 + static_cast<uint32_t>(random->Below(60));
    options.wanted_max = 1 + static_cast<uint32_t>(random->Below(options.slots));
    // Often the same as another's: then they share pages.
    if (random->Below(2) == 0) {
      options.planes = 3;
      options.piece_tokens = 4;
      options.page_tokens = 16;
    }
    options.tokens_max = random->Below(2) * kTokensMax;
    session->id = known.branch.id();
    auto opened = arena_.Open(known.branch, options);
    if (opened.ok()) session->session = *opened;
    return opened.status();
  }

  // Some of the pieces that were wanted before, and others.
  uint32_t Draw(SeededRandom* random, Session* session) const {
    const uint64_t all = session->session.pieces();
    const auto count = static_cast<uint32_t>(
        random->Below(std::min<uint64_t>(session->options.wanted_max, all) + 1));
    std::vector<uint32_t> drawn;
    for (uint32_t head = 0; head < 2; ++head) {
      std::vector<uint32_t> of_head;
      while (of_head.size() < count) {
        const uint32_t piece = !session->pieces.empty() && random->Below(2) == 0
                                   ? session->pieces[random->Below(session->pieces.size())]
                                   : static_cast<uint32_t>(random->Below(all));
        if (std::find(of_head.begin(), of_head.end(), piece) == of_head.end()) {
          of_head.push_back(piece);
        }
      }
      drawn.insert(drawn.end(), of_head.begin(), of_head.end());
    }
    session->pieces = std::move(drawn);
    return count;
  }

  void Client(uint64_t seed) {
    SeededRandom random(seed);
    const auto stream = device_->NewStream(gpu::Priority::kHigh);
    if (!stream.ok()) return;
    std::unique_ptr<Session, SessionEnd> session(nullptr, {device_.get()});
    for (int i = 0; i < kFetchesOfClient && result_.violation.empty(); ++i) {
      machine_.scheduler->Sleep(uint64_t{1} << random.Below(20));
      if (session == nullptr || random.Below(8) == 0) {
        session.reset(new Session);
        session->stream = *stream;
        const uint64_t changes = changes_;
        const Status opened = Open(&random, session.get());
        // A branch that changes meanwhile: it is not known what it was.
        if (!opened.ok() || changes % 2 != 0 || changes_ != changes) {
          session = nullptr;
          Allow(opened, "open");
          continue;
        }
      }
      if (random.Below(6) == 0 && !Extend(session.get())) {
        session = nullptr;
        continue;
      }
      if (random.Below(4) == 0) {
        Replay(&random, session.get());
      } else {
        Fetch(&random, session.get());
      }
    }
    session = nullptr;
    device_->Return(*stream);
  }

  // False: it is not known what the session has now.
  bool Extend(Session* session) {
    const auto known = std::find_if(branches_.begin(), branches_.end(), [&](const Known& one) {
      return one.branch.id() == session->id;
    });
    if (known == branches_.end()) return true;
    const Content content = known->content;
    const uint64_t changes = changes_;
    const Status extended = session->session.Extend();
    if (changes % 2 != 0 || changes_ != changes) return false;
    if (!extended.ok()) {
      // It was rewound meanwhile, or the session has no room.
      if (extended.code() != StatusCode::kConflict &&
          extended.code() != StatusCode::kInvalidArgument) {
        Allow(extended, "extend");
      }
      return extended.code() != StatusCode::kIoError;
    }
    session->content = content;
    ++result_.extended;
    return true;
  }

  void Fetch(SeededRandom* random, Session* session) {
    SparseWanted wanted;
    wanted.layer = static_cast<uint32_t>(random->Below(3));
    wanted.count = Draw(random, session);
    wanted.pieces = session->pieces.data();
    wanted.stride = wanted.count;
    wanted.stream = gpu::SimDevice::HandleOf(session->stream);
    const uint64_t kind = random->Below(5);
    if (kind == 0) {
      const Status noted = session->session.Prefetch(wanted);
      if (noted.code() != StatusCode::kBusy) Allow(noted, "prefetch");
      return;
    }
    if (kind == 1) wanted.mode = SparseMode::kRelaxed;
    if (random->Below(6) == 0) wanted.timeout_ns = uint64_t{1} << random->Below(20);
    ++result_.fetches;
    const auto view = session->session.Fetch(wanted);
    if (arena_.pinned_bytes() > kPinnedBytes || arena_.device_bytes() > kDeviceBytes) {
      Fail("the arena holds more than it may");
    }
    if (!view.ok()) {
      const StatusCode code = view.status().code();
      if (code == StatusCode::kBusy && kind == 1) return;
      if (code == StatusCode::kDeadlineExceeded && wanted.timeout_ns != UINT64_MAX) {
        ++result_.timed_out;
        return;
      }
      return Allow(view.status(), "fetch");
    }
    Compare(*view, wanted, *session);
  }

  // Into a graph of its own, when the session has none.
  Status Capture(SeededRandom* random, Session* session) {
    SparseWanted& wanted = session->captured;
    wanted = {.layer = static_cast<uint32_t>(random->Below(3)), .count = Draw(random, session)};
    CAIRN_ASSIGN_OR_RETURN(session->at,
                           device_->Allocate(gpu::Memory::kDevice, std::max(1u, 8 * wanted.count)));
    wanted.pieces = reinterpret_cast<const uint32_t*>(session->at);
    wanted.stride = wanted.count;
    wanted.on_device = true;
    wanted.stream = gpu::SimDevice::HandleOf(session->stream);
    wanted.mode = SparseMode::kRelaxed;
    device_->BeginCapture(session->stream);
    const auto view = session->session.Capture(wanted);
    session->graph = device_->EndCapture(session->stream);
    if (!view.ok()) return view.status();
    session->view = *view;
    return Status::Ok();
  }

  void Replay(SeededRandom* random, Session* session) {
    if (session->at == nullptr) {
      const Status captured = Capture(random, session);
      if (!captured.ok()) {
        session->graph = 0;
        return Allow(captured, "capture");
      }
    }
    if (session->graph == 0) return;  // It is not whole.
    const uint32_t count = session->captured.count;
    while (Draw(random, session) != count) {
    }
    std::memcpy(session->at, session->pieces.data(), session->pieces.size() * sizeof(uint32_t));
    const Status replayed = SparseSession::Replay(
        {&session->session, 1}, session->captured.stream,
        [&] { return device_->LaunchGraph(session->graph, session->stream); });
    if (!replayed.ok()) return Allow(replayed, "replay");
    ++result_.replayed;
    // Its pieces are overwritten by the next.
    if (!Compare(session->view, session->captured, *session)) session->graph = 0;
  }

  // False: the device does not say when the stream has come so far.
  bool Compare(const SparseView& view, const SparseWanted& wanted, const Session& session) {
    const auto event = device_->NewEvent();
    if (!event.ok()) return false;
    const bool has_ended =
        device_->Record(session.stream, *event).ok() && device_->Wait(*event, io::kNoDeadline).ok();
    if (has_ended) {
      if (options_.wrong_byte && wanted.count != 0 && view.slot_of[0] >= 0) {
        const SparseView::PlaneSlots& slots = view.planes[0];
        const_cast<std::byte*>(
            slots.base)[static_cast<uint64_t>(view.slot_of[0]) * slots.piece_bytes] ^= std::byte{1};
      }
      uint64_t left_out = 0;
      const std::string differs =
          kv_.Compare(view, wanted, session.options, session.content, &left_out);
      if (!differs.empty()) Fail("other bytes: " + differs);
      if (left_out != 0 && wanted.mode == SparseMode::kStrict) Fail("a piece is left out");
      result_.pieces += 2 * wanted.count - left_out;
      result_.left_out += left_out;
    }
    device_->Return(*event);
    return has_ended;
  }

  // The errors that may end a call, given the faults.
  void Allow(const Status& status, const char* call) {
    if (status.ok()) return;
    ++result_.failed;
    switch (status.code()) {
      case StatusCode::kNotFound:
        ++result_.dropped;
        if (drops_) return;
        break;
      case StatusCode::kIoError:
      case StatusCode::kCorruption:
        if (disk_struck_ || device_struck_) return;
        break;
      case StatusCode::kOutOfMemory:
        // The device's, when three sessions are large; pages, when a lost device keeps them.
        if (device_struck_ || status.message().find("are left") != std::string::npos) return;
        break;
      default: break;
    }
    Fail(std::string(call) + ": " + status.ToString());
  }

  // Nothing fails any more.
  void AtRest() {
    disk_struck_ = device_struck_ = drops_ = false;
    const auto stream = device_->NewStream(gpu::Priority::kHigh);
    CAIRN_CHECK(stream.ok());
    for (int i = 0; i < 3 && result_.violation.empty(); ++i) {
      Session session;
      session.stream = *stream;
      const Status opened = Open(&random_, &session);
      if (!opened.ok()) {
        Allow(opened, "open at rest");
        continue;
      }
      Fetch(&random_, &session);
    }
    device_->Return(*stream);
  }

  const SparseFetchesOptions options_;
  SeededRandom random_;
  const io::SimWorld machine_;
  const ModelSpec model_ = testing::SparseModel();
  std::shared_ptr<gpu::SimDevice> device_;
  Store store_;
  SparseArena arena_;
  std::vector<Known> branches_;
  uint64_t next_seed_ = 0, changes_ = 0;
  bool disk_struck_ = false, device_struck_ = false;
  bool drops_ = false;  // Something may have lost the last branch that needed it.
  testing::StoredKv kv_;
  SparseFetchesResult result_;
};

}  // namespace

void SparseFetchesResult::Add(const SparseFetchesResult& other) {
  fetches += other.fetches;
  extended += other.extended;
  replayed += other.replayed;
  pieces += other.pieces;
  left_out += other.left_out;
  failed += other.failed;
  timed_out += other.timed_out;
  dropped += other.dropped;
  pages_read += other.pages_read;
  faults += other.faults;
  if (violation.empty()) violation = other.violation;
}

std::string SparseFetchesResult::Counts() const {
  return "fetches " + std::to_string(fetches) + ": pieces " + std::to_string(pieces) +
         ", left out " + std::to_string(left_out) + ", faults " + std::to_string(faults) +
         ", replayed " + std::to_string(replayed) + ", sessions extended " +
         std::to_string(extended) + ", pages read " + std::to_string(pages_read) + "; failed " +
         std::to_string(failed) + ", of these dropped " + std::to_string(dropped) + "; timed out " +
         std::to_string(timed_out);
}

SparseFetchesResult RunSparseFetches(const SparseFetchesOptions& options) {
  return Run(options).All();
}

}  // namespace cairn::sim
