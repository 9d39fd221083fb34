# SPDX-License-Identifier: MIT
"""What churn_test is made of."""
