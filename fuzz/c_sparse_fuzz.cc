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
#include "fuzz/c_gpu_store.h"
#include "fuzz/input.h"

namespace {

using cairn::fuzz::Must;

constexpr uint32_t kHeads = cairn::fuzz::CGpuStore::kHeads;
constexpr uint32_t kRowBytes = 8, kSessions = 4, kSlotsMax = 32;
constexpr uint64_t kTokens = 128;
constexpr size_t kCallsMax = 60;

class Caller {
 public:
  Caller(const uint8_t* data, size_t bytes)
      : input_(data, bytes), on_(input_.Take<uint8_t>(), kRowBytes / 2, kTokens, 1 << 17) {
    auto* const at = static_cast<uint8_t*>(cairn_kv_buffer_data(on_.kv()));
    for (size_t i = 0; i < cairn_kv_buffer_size(on_.kv()); ++i) {
      at[i] = static_cast<uint8_t>(i * 31 + i / 251);
    }
    on_.Append(kTokens);
    void* ids = nullptr;
    Must(cairn_gpu_allocate(on_.gpu(), kHeads * kSlotsMax * sizeof(uint32_t), &ids, nullptr));
    ids_there_ = static_cast<uint32_t*>(ids);
  }
  ~Caller() {
    if (input_.Take<uint8_t>() % 2 == 0) on_.FreeStore();
    on_.FreeArena();
    for (const Opened& opened : sessions_) cairn_sparse_session_free(opened.session);
    cairn_gpu_deallocate(on_.gpu(), ids_there_);
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

  void Rewind() {
    const uint64_t to = input_.Below(kTokens);
    on_.Rewind(to);
    was_rewound_ = true;
    on_.Append(kTokens);
    if (to % 4 == 0) on_.Compact();
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
    const bool made =
        Told(cairn_sparse_arena_open(on_.arena(), on_.branch(), &options, &session, &error_));
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
      Must(cairn_gpu_copy_in(on_.gpu(), ids_there_, wanted.numbers.data(), sizeof wanted.numbers,
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
      Must(cairn_gpu_copy_out(on_.gpu(), slots.data(), view.slot_of + head * view.slot_of_stride,
                              wanted.count * sizeof(int32_t), nullptr));
      for (uint32_t plane = 0, at = 0; plane < 2; ++plane) {
        if ((opened.options.planes >> plane & 1) == 0) continue;
        const cairn_sparse_plane_slots& from = view.planes[at++];
        std::vector<uint8_t> got(from.head_stride);
        Must(cairn_gpu_copy_out(on_.gpu(), got.data(),
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
                            cairn_kv_buffer_row(on_.kv(), 0, wanted.layer, plane, head, position),
                            kRowBytes) == 0);
          }
        }
      }
    }
  }

  cairn::fuzz::Input input_;
  cairn::fuzz::CGpuStore on_;
  cairn_error* error_ = nullptr;
  uint32_t* ids_there_ = nullptr;
  bool was_rewound_ = false;
  std::array<Opened, kSessions> sessions_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  Caller(data, bytes).Run();
  return 0;
}
