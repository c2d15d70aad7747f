// SPDX-License-Identifier: Apache-2.0
//
// A sequence of calls of sparse sessions in C, over a store in memory and a simulated GPU: options
// and pieces that may be wrong, strict and relaxed, on the host or the device, forks and rewinds
// meanwhile, handles freed in any order. Whatever has a slot has the bytes of its piece.
#include <array>
#include <cstring>
#include <vector>

#include "base/core/check.h"
#include "cairn/c.h"
#include "fuzz/input.h"

namespace {

constexpr uint32_t kLayers = 2, kHeads = 2, kRowBytes = 8, kSessions = 4, kSlotsMax = 32;
constexpr uint64_t kTokens = 128;
constexpr size_t kCallsMax = 60;

class Caller {
 public:
  Caller(const uint8_t* data, size_t bytes) : input_(data, bytes) {
    Must(cairn_gpu_simulated(input_.Take<uint8_t>(), nullptr, &gpu_, nullptr));
    cairn_options options;
    cairn_options_init(&options, sizeof options);
    options.segment_bytes = 256 << 10;
    options.max_memory_bytes = 16 << 20;
    options.hot_tail_bytes = 1 << 20;
    options.executor_threads = 1;
    options.gpus = &gpu_;
    options.gpu_count = 1;
    Must(cairn_store_open(":memory:", &options, &store_, nullptr));
    for (cairn_plane& plane : planes_) cairn_plane_init(&plane, sizeof plane);
    cairn_layer_group group;
    cairn_layer_group_init(&group, sizeof group);
    Must(cairn_layer_group_full_attention(&group, planes_.data(), kLayers, kHeads, kRowBytes / 2,
                                          CAIRN_DTYPE_BF16, nullptr));
    cairn_model_spec spec;
    cairn_model_spec_init(&spec, sizeof spec);
    spec.name = "fuzz";
    spec.groups = &group;
    spec.group_count = 1;
    uint64_t model = 0;
    Must(cairn_store_register_model(store_, &spec, CAIRN_DURABILITY_MEMORY, &model, nullptr));
    Must(cairn_store_create_branch(store_, model, nullptr, &branch_, nullptr));
    Must(cairn_kv_buffer_new(&spec, kTokens, &kv_, nullptr));
    auto* const at = static_cast<uint8_t*>(cairn_kv_buffer_data(kv_));
    for (size_t i = 0; i < cairn_kv_buffer_size(kv_); ++i) {
      at[i] = static_cast<uint8_t>(i * 31 + i / 251);
    }
    Append(0);
    cairn_sparse_arena_options arena;
    cairn_sparse_arena_options_init(&arena, sizeof arena);
    arena.pinned_bytes = 1 << 20;
    arena.device_bytes = 1 << 17;
    Must(cairn_sparse_arena_make(store_, gpu_, &arena, &arena_, nullptr));
    void* ids = nullptr;
    Must(cairn_gpu_allocate(gpu_, kHeads * kSlotsMax * sizeof(uint32_t), &ids, nullptr));
    ids_there_ = static_cast<uint32_t*>(ids);
  }
  ~Caller() {
    if (input_.Take<uint8_t>() % 2 == 0) cairn_store_free(std::exchange(store_, nullptr));
    cairn_sparse_arena_free(arena_);
    for (const Opened& opened : sessions_) cairn_sparse_session_free(opened.session);
    cairn_gpu_deallocate(gpu_, ids_there_);
    cairn_store_free(store_);
    cairn_branch_free(branch_);
    cairn_kv_buffer_free(kv_);
    cairn_gpu_free(gpu_);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void Run() {
    for (size_t calls = 0; calls < kCallsMax && !input_.empty(); ++calls) {
      const uint8_t call = input_.Take<uint8_t>();
      Opened& opened = sessions_[input_.Take<uint8_t>() % kSessions];
      switch (call % 8) {
        case 0: Open(&opened); break;
        case 1:
          cairn_sparse_session_free(opened.session);
          opened = {};
          break;
        case 2: Rewind(); break;
        case 3: Prefetch(opened); break;
        default: Fetch(opened); break;
      }
    }
  }

 private:
  struct Opened {
    cairn_sparse_session* session = nullptr;
    cairn_sparse_options options{};
  };
  struct Wanted : cairn_sparse_wanted {
    std::array<uint32_t, kHeads * kSlotsMax> numbers{};
  };

  static void Must(cairn_code code) { CAIRN_CHECK(code == CAIRN_OK); }
  bool Told(cairn_code code) {
    CAIRN_CHECK((error_ == nullptr) == (code == CAIRN_OK));
    CAIRN_CHECK(cairn_error_code(error_) == code);
    // There is room for the pages of a piece; the content is all there, until the only branch is
    // rewound to before its own part.
    CAIRN_CHECK(code == CAIRN_OK || code == CAIRN_INVALID_ARGUMENT || code == CAIRN_BUSY ||
                code == CAIRN_OUT_OF_MEMORY || (code == CAIRN_NOT_FOUND && was_rewound_));
    cairn_error_free(error_);
    error_ = nullptr;
    return code == CAIRN_OK;
  }

  // The same KV again, whatever was cut.
  void Append(uint64_t begin) {
    cairn_owned_kv_view* view = nullptr;
    Must(cairn_kv_buffer_view_of(kv_, begin, kTokens, &view, nullptr));
    const std::vector<uint32_t> tokens(kTokens - begin, 7);
    cairn_delta delta;
    cairn_delta_init(&delta, sizeof delta);
    delta.tokens = tokens.data();
    delta.token_count = tokens.size();
    delta.kv = cairn_owned_kv_view_view(view);
    Must(cairn_branch_append_sync(branch_, &delta, nullptr, nullptr, nullptr));
    cairn_owned_kv_view_free(view);
  }
  void Rewind() {
    const uint64_t to = input_.Below(kTokens);
    Must(cairn_branch_rewind(branch_, to, CAIRN_DURABILITY_PROCESS, nullptr));
    was_rewound_ = true;
    Append(to);
    if (to % 4 == 0) Must(cairn_store_compact(store_, nullptr));
  }

  void Open(Opened* opened) {
    cairn_sparse_options options;
    cairn_sparse_options_init(&options, sizeof options);
    options.planes = input_.Take<uint8_t>() % 5;
    options.piece_tokens = input_.Take<uint8_t>() % 9;
    options.page_tokens = options.piece_tokens * (input_.Take<uint8_t>() % 4);
    options.slots = input_.Take<uint8_t>() % (kSlotsMax + 1);
    options.wanted_max = input_.Take<uint8_t>() % (kSlotsMax + 1);
    const uint8_t end = input_.Take<uint8_t>();
    if (end < kTokens + 2) options.end = end;
    cairn_sparse_session* session = nullptr;
    const bool made = Told(cairn_sparse_arena_open(arena_, branch_, &options, &session, &error_));
    CAIRN_CHECK(made == (session != nullptr));
    cairn_sparse_session_free(opened->session);
    *opened = {session, options};
  }

  // Mostly of pieces that there are.
  void Fill(const Opened& opened, Wanted* wanted) {
    cairn_sparse_wanted_init(wanted, sizeof(cairn_sparse_wanted));
    const uint64_t pieces = cairn_sparse_session_pieces(opened.session);
    const uint8_t how = input_.Take<uint8_t>();
    wanted->layer = how % 16 == 0 ? 2 : how % 2;
    wanted->count = input_.Take<uint8_t>() % (kSlotsMax + 1);
    wanted->stride = kSlotsMax;
    wanted->mode = how / 16 % 3;
    const uint32_t first = input_.Take<uint8_t>();
    for (uint32_t i = 0; i < wanted->numbers.size(); ++i) {
      wanted->numbers[i] = first + i * (1 + i / kSlotsMax);
      if (how % 8 == 3) wanted->numbers[i] = input_.Take<uint8_t>() % 64;  // Twice, or beyond.
      if (how % 8 != 3 && pieces != 0) wanted->numbers[i] %= static_cast<uint32_t>(pieces);
    }
    wanted->pieces = wanted->numbers.data();
  }

  void Prefetch(const Opened& opened) {
    Wanted wanted;
    Fill(opened, &wanted);
    Told(cairn_sparse_session_prefetch(opened.session, &wanted, &error_));
  }

  void Fetch(const Opened& opened) {
    Wanted wanted;
    Fill(opened, &wanted);
    if (input_.Take<uint8_t>() % 4 == 0) {
      Must(cairn_gpu_copy_in(gpu_, ids_there_, wanted.numbers.data(), sizeof wanted.numbers,
                             nullptr));
      wanted.on_device = true;
      wanted.pieces = ids_there_;
      wanted.mode = CAIRN_SPARSE_STRICT;  // The next step writes there.
    }
    cairn_sparse_view view;
    cairn_sparse_view_init(&view, sizeof view);
    if (!Told(cairn_sparse_session_fetch(opened.session, &wanted, &view, &error_))) return;
    if (wanted.mode == CAIRN_SPARSE_STRICT) Compare(opened, wanted, view);
  }

  void Compare(const Opened& opened, const Wanted& wanted, const cairn_sparse_view& view) {
    for (uint32_t head = 0; head < kHeads && wanted.count != 0; ++head) {
      std::array<int32_t, kSlotsMax> slots;
      Must(cairn_gpu_copy_out(gpu_, slots.data(), view.slot_of + head * view.slot_of_stride,
                              wanted.count * sizeof(int32_t), nullptr));
      for (uint32_t plane = 0, at = 0; plane < 2; ++plane) {
        if ((opened.options.planes >> plane & 1) == 0) continue;
        const cairn_sparse_plane_slots& from = view.planes[at++];
        std::vector<uint8_t> got(from.head_stride);
        Must(cairn_gpu_copy_out(gpu_, got.data(),
                                static_cast<const uint8_t*>(from.base) + head * from.head_stride,
                                from.head_stride, nullptr));
        for (uint32_t i = 0; i < wanted.count; ++i) {
          CAIRN_CHECK(slots[i] >= 0 && static_cast<uint32_t>(slots[i]) < opened.options.slots);
          const uint32_t tokens = opened.options.piece_tokens;
          for (uint64_t token = 0; token < tokens; ++token) {
            const uint64_t position =
                wanted.numbers[head * kSlotsMax + i] * uint64_t{tokens} + token;
            CAIRN_CHECK(
                std::memcmp(got.data() + static_cast<uint64_t>(slots[i]) * from.piece_bytes +
                                token * kRowBytes,
                            cairn_kv_buffer_row(kv_, 0, wanted.layer, plane, head, position),
                            kRowBytes) == 0);
          }
        }
      }
    }
  }

  cairn::fuzz::Input input_;
  cairn_error* error_ = nullptr;
  cairn_gpu* gpu_ = nullptr;
  cairn_store* store_ = nullptr;
  cairn_branch* branch_ = nullptr;
  cairn_kv_buffer* kv_ = nullptr;
  cairn_sparse_arena* arena_ = nullptr;
  uint32_t* ids_there_ = nullptr;
  bool was_rewound_ = false;
  std::array<cairn_plane, 2> planes_;
  std::array<Opened, kSessions> sessions_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  Caller(data, bytes).Run();
  return 0;
}
