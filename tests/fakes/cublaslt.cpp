// A stand-in for libcublasLt.so.13: it keeps a log of what it is asked and multiplies on the CPU, column by column as
// cuBLAS does. FAKE_LT_FAIL names a call that fails, FAKE_LT_ALGORITHMS how many algorithms there are (3).
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string log_text;

struct Desc {
    int compute, scale, transpose_a = 0, transpose_b = 0;
    const float *scale_a = nullptr, *scale_b = nullptr;
};
struct Layout {
    int type;
    std::uint64_t rows, columns;
    std::int64_t pitch;
};
struct Preference {
    std::uint64_t workspace = 0;
};
struct Algorithm {
    std::uint64_t data[8];
};
struct Result {
    Algorithm algorithm;
    std::size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
constexpr std::uint64_t kMark = 0xfeed;  // in algorithms of ours

int answer(const std::string& call, const std::string& about = "") {
    log_text += call + (about.empty() ? "" : " " + about) + "\n";
    const char* const failing = std::getenv("FAKE_LT_FAIL");
    return failing != nullptr && call == failing ? 13 : 0;  // CUBLAS_STATUS_EXECUTION_FAILED
}

float from_bits(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

double load(const void* p, int type, std::size_t i) {
    switch (type) {  // cudaDataType
        case 0:
            return static_cast<const float*>(p)[i];
        case 1:
            return static_cast<const double*>(p)[i];
        case 3:
            return static_cast<const std::int8_t*>(p)[i];
        case 14:
            return from_bits(std::uint32_t{static_cast<const std::uint16_t*>(p)[i]} << 16);
        case 28: {  // e4m3, but for NaN
            const unsigned bits = static_cast<const std::uint8_t*>(p)[i], exponent = bits >> 3 & 15,
                           fraction = bits & 7;
            const double size = exponent != 0 ? (8.0 + fraction) / 1024 * (1 << exponent) : fraction / 512.0;
            return (bits & 128) != 0 ? -size : size;
        }
        default:
            std::abort();
    }
}

void store(void* p, int type, std::size_t i, double value) {
    switch (type) {
        case 0:
            static_cast<float*>(p)[i] = static_cast<float>(value);
            return;
        case 1:
            static_cast<double*>(p)[i] = value;
            return;
        case 10:
            static_cast<std::int32_t*>(p)[i] = static_cast<std::int32_t>(value);
            return;
        case 14: {
            const float narrow = static_cast<float>(value);
            std::uint32_t bits;
            std::memcpy(&bits, &narrow, sizeof bits);
            static_cast<std::uint16_t*>(p)[i] = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
            return;
        }
        default:
            std::abort();
    }
}

double scalar(const void* p, int type) {
    if (type == 10) return *static_cast<const std::int32_t*>(p);
    return load(p, type, 0);
}

std::string text(const Layout& l) {
    return std::to_string(l.type) + ":" + std::to_string(l.rows) + "x" + std::to_string(l.columns) + "/" +
           std::to_string(l.pitch);
}

}  // namespace

extern "C" {

const char* fake_log() { return log_text.c_str(); }
void fake_clear() { log_text.clear(); }

std::size_t cublasLtGetVersion() { return 131000; }
const char* cublasLtGetStatusName(int status) {
    return status == 13 ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
const char* cublasLtGetStatusString(int) { return "so says the fake"; }

int cublasLtCreate(int** handle) {
    *handle = new int(7);
    return answer("create");
}
int cublasLtDestroy(int* handle) {
    delete handle;
    return answer("destroy");
}
int cublasLtMatmulDescCreate(Desc** desc, int compute, int scale) {
    *desc = new Desc{compute, scale};
    return answer("desc", std::to_string(compute) + "," + std::to_string(scale));
}
int cublasLtMatmulDescDestroy(Desc* desc) {
    delete desc;
    return answer("desc-destroy");
}
int cublasLtMatmulDescSetAttribute(Desc* desc, int attribute, const void* value, std::size_t bytes) {
    if (attribute == 3 && bytes == 4) std::memcpy(&desc->transpose_a, value, 4);
    if (attribute == 17 && bytes == 8) std::memcpy(&desc->scale_a, value, 8);
    if (attribute == 18 && bytes == 8) std::memcpy(&desc->scale_b, value, 8);
    return answer("desc-set", std::to_string(attribute) + "/" + std::to_string(bytes));
}
int cublasLtMatrixLayoutCreate(Layout** layout, int type, std::uint64_t rows, std::uint64_t columns,
                               std::int64_t pitch) {
    *layout = new Layout{type, rows, columns, pitch};
    return answer("layout", text(**layout));
}
int cublasLtMatrixLayoutDestroy(Layout* layout) {
    delete layout;
    return answer("layout-destroy");
}
int cublasLtMatmulPreferenceCreate(Preference** preference) {
    *preference = new Preference;
    return answer("preference");
}
int cublasLtMatmulPreferenceDestroy(Preference* preference) {
    delete preference;
    return answer("preference-destroy");
}
int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value, std::size_t bytes) {
    if (attribute == 1 && bytes == 8) std::memcpy(&preference->workspace, value, 8);
    return answer("preference-set", std::to_string(attribute) + "/" + std::to_string(bytes));
}
// The last algorithm of the list is one that failed to be made up.
int cublasLtMatmulAlgoGetHeuristic(int* handle, Desc*, Layout*, Layout*, Layout*, Layout*, Preference* preference,
                                   int most, Result* results, int* count) {
    if (*handle != 7 || preference->workspace == 0) return 7;
    const char* const wanted = std::getenv("FAKE_LT_ALGORITHMS");
    *count = wanted != nullptr ? std::atoi(wanted) : 3;
    for (int i = 0; i < *count && i < most; ++i) {
        results[i] =
            Result{{{kMark, static_cast<std::uint64_t>(i)}}, 1024, i + 1 == *count && i > 0 ? 15 : 0, 0.5F, {}};
    }
    return answer("heuristic", std::to_string(most));
}
int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value, std::size_t bytes,
                                         std::size_t* written) {
    if (attribute == 8) return 15;  // as a library that knows no clusters
    if (algorithm->data[0] != kMark || bytes != 4) return 7;
    const std::int32_t number = attribute * 100 + static_cast<std::int32_t>(algorithm->data[1]);
    std::memcpy(value, &number, 4);
    *written = 4;
    return 0;
}
int cublasLtMatmul(int* handle, Desc* desc, const void* alpha, const void* a, Layout* la, const void* b, Layout* lb,
                   const void* beta, const void* c, Layout* lc, void* d, Layout* ld, const Algorithm* algorithm,
                   void* workspace, std::size_t workspace_bytes, void*) {
    if (*handle != 7 || algorithm->data[0] != kMark || workspace == nullptr || workspace_bytes < 1024 || c != d ||
        lc != ld)
        return 7;
    if (scalar(alpha, desc->scale) != 1 || scalar(beta, desc->scale) != 0) return 7;
    const std::uint64_t depth = desc->transpose_a != 0 ? la->rows : la->columns;
    if (depth != lb->rows) return 7;
    const double scale =
        (desc->scale_a != nullptr ? *desc->scale_a : 1) * (desc->scale_b != nullptr ? *desc->scale_b : 1);
    const auto pitch_a = static_cast<std::uint64_t>(la->pitch), pitch_b = static_cast<std::uint64_t>(lb->pitch);
    for (std::uint64_t column = 0; column < ld->columns; ++column) {
        for (std::uint64_t row = 0; row < ld->rows; ++row) {
            double sum = 0;
            for (std::uint64_t p = 0; p < depth; ++p) {
                const std::uint64_t at_a = desc->transpose_a != 0 ? row * pitch_a + p : p * pitch_a + row;
                sum += load(a, la->type, at_a) * load(b, lb->type, column * pitch_b + p);
            }
            store(d, ld->type, column * static_cast<std::uint64_t>(ld->pitch) + row, sum * scale);
        }
    }
    return answer("matmul", std::to_string(algorithm->data[1]));
}
}
