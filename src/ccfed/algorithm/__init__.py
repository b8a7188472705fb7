"""The paper in code: budgets, schedules, estimators, histories, servers, and the round in which they meet."""
