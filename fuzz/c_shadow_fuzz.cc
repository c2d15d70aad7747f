// SPDX-License-Identifier: Apache-2.0
//
// A sequence of calls of shadows in C, over a store in memory and a simulated GPU: specs that may
// be wrong, steps in any order, branches that grow and are rewound, keys that are no numbers,
// handles freed in any order. What a step attends to is what is stored.
#include <algorithm>
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
constexpr uint32_t kQueryHeads = 4, kChannels = 8, kSessions = 3;
constexpr uint32_t kRowBytes = kChannels * 2;
constexpr uint64_t kTokens = 448, kFirst = 256;
constexpr size_t kCallsMax = 40;

class Caller {
 public:
  Caller(const uint8_t* data, size_t bytes)
      : input_(data, bytes), on_(input_.Take<uint8_t>(), kChannels, kTokens, 1 << 18) {
    FillKv();
    on_.Append(kFirst);
    Must(cairn_gpu_allocate(on_.gpu(), sizeof(float) * kQueryHeads * kChannels, &there_, nullptr));
  }
  ~Caller() {
    if (input_.Take<uint8_t>() % 2 == 0) on_.FreeStore();
    on_.FreeArena();
    for (const Opened& opened : sessions_) cairn_shadow_session_free(opened.session);
    cairn_gpu_deallocate(on_.gpu(), there_);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void Run() {
    for (size_t calls = 0; calls < kCallsMax && !input_.empty(); ++calls) {
      const uint8_t call = input_.Take<uint8_t>();
      Opened& opened = sessions_[input_.Take<uint8_t>() % kSessions];
      switch (call % 12) {
        case 0: Open(&opened); break;
        case 1:
          cairn_shadow_session_free(opened.session);
          opened = {};
          break;
        case 2: on_.Append(on_.length() + input_.Take<uint8_t>()); break;
        case 3: Rewind(); break;
        case 4: Table(); break;
        case 5: Extend(&opened); break;
        case 6: Prefetch(opened); break;
        case 7: AppendRow(opened); break;
        case 8: Told(cairn_shadow_session_save(opened.session, &error_)); break;
        default: Step(opened); break;
      }
    }
  }

 private:
  struct Opened {
    cairn_shadow_session* session = nullptr;
    uint32_t chunk_tokens = 0;
  };

  bool Told(cairn_code code) {
    CAIRN_CHECK((error_ == nullptr) == (code == CAIRN_OK));
    CAIRN_CHECK(cairn_error_code(error_) == code);
    // Steps out of order; an Extend behind a rewind; a shadow that nobody made; a rewind that took
    // what only this branch needed.
    CAIRN_CHECK(code == CAIRN_OK || code == CAIRN_INVALID_ARGUMENT || code == CAIRN_BUSY ||
                code == CAIRN_OUT_OF_MEMORY || code == CAIRN_INVALID_STATE ||
                code == CAIRN_CONFLICT || code == CAIRN_NOT_FOUND);
    cairn_error_free(error_);
    error_ = nullptr;
    return code == CAIRN_OK;
  }

  void FillKv() {
    // From 0.5 to 1, of either sign; and maybe one key that is no number.
    auto* const at = static_cast<uint8_t*>(cairn_kv_buffer_data(on_.kv()));
    const size_t bytes = cairn_kv_buffer_size(on_.kv());
    for (size_t i = 0; i < bytes / 2; ++i) {
      const auto element = static_cast<uint16_t>(0x3f00 | ((i * 37 + i / 97) & 0x807f));
      std::memcpy(at + 2 * i, &element, 2);
    }
    const uint8_t wrong = input_.Take<uint8_t>();
    if (wrong % 8 == 0) {
      const uint16_t nan = 0x7fc0;
      auto* const row =
          const_cast<void*>(cairn_kv_buffer_row(on_.kv(), 0, 1, 0, 1, 260 + wrong / 8));
      std::memcpy(row, &nan, 2);
    }
  }

  void Rewind() {
    const uint64_t to = 64 + input_.Below(on_.length() - 64);
    on_.Rewind(to);
    if (to % 4 == 0) on_.Compact();
    on_.Append(kFirst);
  }

  cairn_shadow_spec Spec() {
    cairn_shadow_spec spec;
    cairn_shadow_spec_init(&spec, sizeof spec);
    const uint8_t how = input_.Take<uint8_t>();
    spec.keys = how % 6;
    spec.chunk_tokens = how < 240 ? 1U << how % 4 : how;
    spec.landmark_bits = how % 5 == 0 ? 16 : how % 5 == 1 ? 8 : 4;
    if (spec.keys == CAIRN_SHADOW_KEYS_LOW_RANK) {
      spec.rank = input_.Take<uint8_t>() % 20;
      if (spec.rank == 0) spec.rank_energy = 0.9;
    }
    spec.local_tokens = input_.Take<uint8_t>() % 9 * 8;
    spec.outlier_chunks = input_.Take<uint8_t>() % 8;
    spec.budget_tokens = input_.Take<uint8_t>() % 16 * 8;
    return spec;
  }

  void Table() {
    const cairn_shadow_spec spec = Spec();
    cairn_shadow_of of;
    cairn_shadow_of_init(&of, sizeof of);
    of.spec = &spec;
    cairn_shadow_info info;
    cairn_shadow_info_init(&info, sizeof info);
    if (Told(cairn_build_shadow(on_.branch(), &of, &info, &error_))) {
      CAIRN_CHECK(info.tokens == on_.length() && info.covered <= on_.length());
      if (info.table_bytes != 0) Must(cairn_find_shadow(on_.branch(), &of, &info, nullptr));
    }
    if (input_.Take<uint8_t>() % 2 == 0) Told(cairn_drop_shadow(on_.branch(), &of, &error_));
  }

  void Open(Opened* opened) {
    const cairn_shadow_spec spec = Spec();
    cairn_shadow_options options;
    cairn_shadow_options_init(&options, sizeof options);
    options.spec = &spec;
    const uint8_t how = input_.Take<uint8_t>();
    options.query_heads = how % 16 == 0 ? 3 : kQueryHeads;
    options.slots = how % 3 == 0 ? how : 0;
    options.append_tokens = how % 5;
    options.build = how % 7 != 0;
    if (how % 2 == 0) options.tokens_max = kTokens;
    cairn_shadow_session* session = nullptr;
    const bool made =
        Told(cairn_shadow_session_open(on_.arena(), on_.branch(), &options, &session, &error_));
    CAIRN_CHECK(made == (session != nullptr));
    cairn_shadow_session_free(opened->session);
    *opened = {session, spec.chunk_tokens};
  }

  void Extend(Opened* opened) {
    Told(cairn_shadow_session_extend(opened->session, UINT64_MAX, &error_));
  }

  void Prefetch(const Opened& opened) {
    std::array<uint32_t, kHeads * 4> chunks;
    for (uint32_t& chunk : chunks) chunk = input_.Take<uint8_t>();
    Told(cairn_shadow_session_prefetch(opened.session, input_.Take<uint8_t>() % 3, chunks.data(),
                                       input_.Take<uint8_t>() % 6, 4, &error_));
  }

  void AppendRow(const Opened& opened) {
    cairn_shadow_rows rows;
    cairn_shadow_rows_init(&rows, sizeof rows);
    rows.layer = input_.Take<uint8_t>() % 3;
    rows.keys = rows.values = there_;  // Finite numbers.
    Told(cairn_shadow_session_append(opened.session, &rows, &error_));
  }

  void Step(const Opened& opened) {
    const uint8_t how = input_.Take<uint8_t>();
    const uint32_t layer = how % 16 == 0 ? 2 : how % 2;
    std::array<float, size_t{kQueryHeads} * kChannels> queries;
    for (float& element : queries) {
      element = static_cast<float>(input_.Take<uint8_t>()) / 64.0F - 2.0F;
    }
    Must(cairn_gpu_copy_in(on_.gpu(), there_, queries.data(), sizeof queries, nullptr));
    cairn_shadow_query query;
    cairn_shadow_query_init(&query, sizeof query);
    query.layer = layer;
    query.queries = there_;
    query.is_fp32 = true;
    if (how / 16 % 8 != 0 && !Told(cairn_shadow_session_select(opened.session, &query, &error_))) {
      return;
    }
    if (how / 16 % 4 != 1) Told(cairn_shadow_session_rebuild(opened.session, layer, 0, &error_));
    cairn_shadow_fetch fetch;
    cairn_shadow_fetch_init(&fetch, sizeof fetch);
    fetch.layer = layer;
    fetch.mode = how / 16 % 4 == 2 ? CAIRN_SPARSE_RELAXED : CAIRN_SPARSE_STRICT;
    if (!Told(cairn_shadow_session_fetch(opened.session, &fetch, &error_))) return;
    cairn_shadow_view view;
    cairn_shadow_view_init(&view, sizeof view);
    if (!Told(cairn_shadow_session_view(opened.session, layer, &view, &error_))) return;
    if (fetch.mode == CAIRN_SPARSE_STRICT) Compare(opened, layer, view);
  }

  template <typename T>
  std::vector<T> Out(const T* from, size_t count) {
    std::vector<T> got(count);
    if (count != 0)
      Must(cairn_gpu_copy_out(on_.gpu(), got.data(), from, count * sizeof(T), nullptr));
    return got;
  }

  // The values of the chosen chunks, which differ from each other.
  void Compare(const Opened& opened, uint32_t layer, const cairn_shadow_view& view) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      const auto chunks = Out(view.chunks + head * view.stride, view.count);
      const auto slots = Out(view.value_slot_of + head * view.stride, view.count);
      for (uint32_t i = 0; i < view.count; ++i) {
        CAIRN_CHECK(std::count(chunks.begin(), chunks.end(), chunks[i]) == 1);
        CAIRN_CHECK(slots[i] >= 0);
        const auto rows =
            Out(static_cast<const uint8_t*>(view.values.base) + head * view.values.head_stride +
                    static_cast<uint64_t>(slots[i]) * view.values.piece_bytes,
                view.values.piece_bytes);
        for (uint32_t token = 0; token < opened.chunk_tokens; ++token) {
          const uint64_t position = uint64_t{chunks[i]} * opened.chunk_tokens + token;
          CAIRN_CHECK(position < kTokens);
          CAIRN_CHECK(std::memcmp(rows.data() + size_t{token} * kRowBytes,
                                  cairn_kv_buffer_row(on_.kv(), 0, layer, 1, head, position),
                                  kRowBytes) == 0);
        }
      }
    }
  }

  cairn::fuzz::Input input_;
  cairn::fuzz::CGpuStore on_;
  cairn_error* error_ = nullptr;
  void* there_ = nullptr;
  std::array<Opened, kSessions> sessions_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  Caller(data, bytes).Run();
  return 0;
}
